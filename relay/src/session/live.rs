//! An open session: driven until it ends, told to go and closed when its orders say so.

use super::Established;
use crate::drain::{Ending, Open, sleep_until};
use moq_net::transport::poll;
use std::time::{Duration, Instant};

/// How long a session that was closed may take to bring its close onto the wire. WebTransport writes a capsule first
/// and gives the peer three round trips to answer it.
const CLOSE: Duration = Duration::from_secs(2);

/// Serves a session to its end.
pub(super) async fn run<S>((session, driver): Established<S>, mut open: Open)
where
    S: poll::Session + Send,
    moq_net::Driver<S>: Send,
{
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
                    tell(&session, left);
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

/// Sends the session's one GOAWAY, with an empty URI: reconnect to where you are, the successor serves there. A version
/// without GOAWAY is not told; its close comes all the same.
fn tell(session: &moq_net::Session, left: Duration) {
    let goaway = moq_net::goaway::Goaway::new().with_timeout(left);
    if let Err(error) = session.drain().send(goaway) {
        tracing::warn!(%error, "failed to send GOAWAY");
    }
}

fn close(session: &moq_net::Session, told: bool) {
    session.abort(if told { moq_net::Error::GoawayTimeout } else { moq_net::Error::GoingAway });
}
