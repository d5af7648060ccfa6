//! An open session: driven until it ends, told to go and closed when its orders say so.

use super::Established;
use crate::drain::{Ending, Open, sleep_until};
use crate::linger;
use moq_net::goaway::Goaway;
use moq_net::transport::poll;
use std::time::{Duration, Instant};

/// How long a session that was closed may take to bring its close onto the wire. WebTransport writes a capsule first
/// and gives the peer three round trips to answer it.
const CLOSE: Duration = Duration::from_secs(2);

/// Serves a session to its end.
pub(super) async fn run<S>(established: Established<S>, mut open: Open, whereto: Whereto)
where
    S: poll::Session + Send,
    moq_net::Driver<linger::Session<S>>: Send,
{
    let Established { session, driver, .. } = established;
    // A task of its own: what wakes the driver is traffic, and must not poll the timers and orders here.
    let mut driving = tokio::spawn(moq_net::time::run(driver));
    let mut told = false;
    let ending = loop {
        let orders = open.orders();
        let next = orders.map(|slot| if told { slot.close } else { slot.tell.min(slot.close) });
        tokio::select! {
            biased;
            _ = &mut driving => break Ending::Left,
            () = open.changed() => {}
            () = sleep_until(next) => {
                let now = Instant::now();
                if let Some(left) = open.tell(now) {
                    told = true;
                    tell(&session, left, &whereto);
                } else if orders.is_some_and(|slot| slot.close <= now) {
                    close(&session, told);
                    if tokio::time::timeout(CLOSE, &mut driving).await.is_err() {
                        driving.abort();
                    }
                    break Ending::Forced;
                }
            }
        }
    };
    open.end(ending);
}

/// Where a drain sends a session: to where it is, since the successor serves there.
pub(super) enum Whereto {
    /// By an empty URI.
    Here,
    /// By the URL that it dialed, with the credentials it brought: what makes a peer of today move before it is closed.
    Url(Box<str>),
}

/// The longest URI of a GOAWAY: 8 192 bytes (draft-ietf-moq-transport, GOAWAY).
const LONGEST_URI: usize = 8_192;

/// Sends the session's one GOAWAY. A version without GOAWAY is not told; its close comes all the same.
fn tell(session: &moq_net::Session, left: Duration, whereto: &Whereto) {
    let goaway = match whereto {
        Whereto::Url(url) if url.len() <= LONGEST_URI => Goaway::redirect(&**url),
        Whereto::Url(_) | Whereto::Here => Goaway::new(),
    };
    let goaway = goaway.with_timeout(left);
    if let Err(error) = session.drain().send(goaway) {
        tracing::warn!(%error, "failed to send GOAWAY");
    }
}

fn close(session: &moq_net::Session, told: bool) {
    session.abort(if told { moq_net::Error::GoawayTimeout } else { moq_net::Error::GoingAway });
}
