//! Inside one worker's thread.

use super::{Death, Ended, Shared, pin};
use crate::node::{Node, Tally};
use crate::session::serve_quic;
use protocol::child::Member;
use protocol::quinn::{MemberCounters, MemberEndpoint, MemberLedger};
use std::any::Any;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// How long the last packets of closed connections may take after a stop. A close goes out at once; what follows only
/// repeats it to a peer that still sends (RFC 9000 §10.2.1).
const FLUSH: Duration = Duration::from_millis(500);

/// What is particular to one worker.
pub(super) struct Spec {
    pub(super) member: Member,
    pub(super) core: Option<usize>,
    pub(super) tally: Arc<Tally>,
    pub(super) stop: watch::Receiver<bool>,
}

/// Starts the thread. It says on `started` that it can accept, and on `ended` why it ended, in any case.
pub(super) fn spawn(
    spec: Spec,
    shared: Shared,
    started: oneshot::Sender<Arc<MemberCounters>>,
    ended: mpsc::UnboundedSender<Ended>,
) -> io::Result<JoinHandle<()>> {
    let member = spec.member.id;
    std::thread::Builder::new().name(format!("quic-{}", member.get())).spawn(move || {
        let mut started = Some(started);
        let result = guarded(|| run(spec, shared, &mut started));
        // The reason first: whoever waits for `started` reads it once that is dropped.
        drop(ended.send(Ended { member, result }));
        drop(started);
    })
}

/// Runs a worker such that its panic is a reason like any other.
fn guarded(body: impl FnOnce() -> Result<(), Death>) -> Result<(), Death> {
    // Nothing that the body may have left half-done is used after a panic.
    let result = std::panic::catch_unwind(AssertUnwindSafe(body));
    result.unwrap_or_else(|panic| Err(Death::Panic(message(panic.as_ref()))))
}

fn run(spec: Spec, shared: Shared, started: &mut Option<oneshot::Sender<Arc<MemberCounters>>>) -> Result<(), Death> {
    if let Some(core) = spec.core {
        pin::pin(core);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Death::Start)?;
    runtime.block_on(async {
        let Shared { node, endpoints, server } = shared;
        let MemberEndpoint { endpoint, counters, ledger, .. } =
            endpoints.open(spec.member, Some(server)).map_err(Death::Start)?;
        if let Some(started) = started.take() {
            drop(started.send(counters));
        }
        accept(&endpoint, &node, &spec.tally, ledger.as_ref(), spec.stop).await
    })
}

/// Accepts as the role says, until the stop.
async fn accept(
    endpoint: &quinn::Endpoint,
    node: &Arc<Node>,
    tally: &Arc<Tally>,
    ledger: Option<&Arc<MemberLedger>>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Death> {
    let port = endpoint.local_addr().map_err(Death::Start)?.port();
    loop {
        let incoming = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            incoming = endpoint.accept() => incoming.ok_or(Death::Endpoint)?,
        };
        let accepts = node.role.borrow().accepts_quic(Instant::now());
        match if accepts { node.registry.setup() } else { None } {
            Some(setup) => {
                let recorded = ledger.map(|ledger| ledger.recorded(incoming.remote_address()));
                let serving = serve_quic(incoming, port, setup, node.clone(), tally.clone());
                tokio::spawn(async move {
                    let _until_its_end = recorded;
                    serving.await;
                });
            }
            None => incoming.ignore(),
        }
    }
    let flushed = tokio::time::timeout(FLUSH, endpoint.wait_idle());
    tokio::pin!(flushed);
    loop {
        tokio::select! {
            biased;
            _ = &mut flushed => return Ok(()),
            // Dropping one would refuse it.
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => incoming.ignore(),
                None => return Ok(()),
            },
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Death, accept, guarded};
    use crate::node::{Node, Tally};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;

    /// A panic that only ended its thread would leave a socket that nobody reads, steered to for ever.
    #[test]
    fn a_panic_is_a_death_with_its_message() {
        for body in [|| panic!("literal"), || panic!("formatted {}", 1)] {
            let death = guarded(body).expect_err("it panicked");
            assert!(matches!(&death, Death::Panic(text) if ["literal", "formatted 1"].contains(&text.as_str())));
        }
        assert!(guarded(|| Ok(())).is_ok());
    }

    /// quinn says that its endpoint is gone by accepting nothing more, which must not look like an orderly stop.
    #[tokio::test]
    async fn an_endpoint_that_stops_is_a_death() {
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket");
        let (_stop, stopped) = watch::channel(false);
        let tally = Arc::new(Tally::default());
        let node = Node::idle();
        let serving = accept(&endpoint, &node, &tally, None, stopped);
        endpoint.close(0_u8.into(), b"");
        let ended = tokio::time::timeout(Duration::from_secs(20), serving).await.expect("it notices");
        assert!(matches!(ended, Err(Death::Endpoint)), "{ended:?}");
    }
}
