//! What the registry says while connections come, are told, and go.

use super::{Counts, Ending, Open, Registry};
use crate::drain::{Purpose, Slot};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(1);

fn session(registry: &Arc<Registry>, now: Instant) -> Open {
    registry.setup().expect("open for all").open(now, Purpose::Subscribe)
}

async fn is_drained(registry: &Registry) -> bool {
    timeout(SOON, registry.drained()).await.is_ok()
}

/// A connection counts from its first packet, in one state at a time.
#[test]
fn a_connection_is_in_setup_or_a_session_until_it_goes() {
    let registry = Registry::new();
    let setup = registry.setup().expect("open for all");
    assert_eq!(registry.counts(), Counts { setup: 1, ..Counts::default() });
    let open = setup.open(Instant::now(), Purpose::Subscribe);
    assert_eq!(registry.counts(), Counts { sessions: 1, handshakes: 1, ..Counts::default() });
    open.end(Ending::Left);
    assert_eq!(registry.counts(), Counts { handshakes: 1, ..Counts::default() });
    drop(registry.setup());
    assert_eq!(registry.counts(), Counts { handshakes: 1, ..Counts::default() });
}

/// An idle relay must not end by itself, and a drained one must not wait for its deadline.
#[tokio::test]
async fn drained_means_draining_and_empty() {
    let registry = Registry::new();
    assert!(!is_drained(&registry).await);
    let setup = registry.setup().expect("open for all");
    registry.drain(Instant::now(), SECOND * 60, None, None, false);
    assert!(!is_drained(&registry).await, "a connection in setup keeps the process alive");
    let open = setup.open(Instant::now(), Purpose::Subscribe);
    assert!(!is_drained(&registry).await);
    drop(open);
    assert!(is_drained(&registry).await);
    assert!(registry.setup().is_none(), "the process is about to end: nobody would serve a newcomer");
}

/// The waiter is woken by the last connection, not by a timer.
#[tokio::test]
async fn the_last_to_go_wakes_the_waiter() {
    let registry = Registry::new();
    let open = session(&registry, Instant::now());
    registry.drain(Instant::now(), SECOND * 60, None, None, false);
    let waiter = tokio::spawn({
        let registry = registry.clone();
        async move { registry.drained().await }
    });
    tokio::task::yield_now().await;
    drop(open);
    timeout(SECOND * 10, waiter).await.expect("woken").expect("no panic");
}

/// A session can be told once: the second drain only moves its close.
#[test]
fn a_told_session_is_not_told_again() {
    let registry = Registry::new();
    let now = Instant::now();
    let open = session(&registry, now);
    assert_eq!(open.tell(now), None, "nobody drains");
    registry.drain(now, SECOND * 10, Some(Duration::ZERO), None, false);
    assert_eq!(open.tell(now), Some(SECOND * 10));
    registry.drain(now, SECOND * 3, Some(Duration::ZERO), None, false);
    assert_eq!(open.tell(now), None);
    assert_eq!(open.orders(), Some(Slot { tell: now, close: now + SECOND * 3 }));
    assert_eq!(registry.counts().told, 1);
    open.end(Ending::Left);
    assert_eq!((registry.counts().left, registry.counts().forced), (1, 0));
}

/// A longer drain that follows takes nothing back, for those here and for those that come.
#[test]
fn a_longer_drain_does_not_extend_a_shorter_one() {
    let registry = Registry::new();
    let now = Instant::now();
    let open = session(&registry, now);
    registry.drain(now, SECOND * 3, Some(Duration::ZERO), None, false);
    let begun = registry.drain(now, SECOND * 600, Some(Duration::ZERO), None, false);
    assert_eq!(begun.deadline, now + SECOND * 3);
    assert_eq!(open.orders().map(|slot| slot.close), Some(now + SECOND * 3));
    let late = session(&registry, now + SECOND);
    assert_eq!(late.orders(), Some(Slot { tell: now + SECOND, close: now + SECOND * 3 }));
}

/// Closing without telling: a session whose deadline has come has no time to act on a GOAWAY.
#[test]
fn a_session_without_time_left_is_not_told() {
    let registry = Registry::new();
    let now = Instant::now();
    let open = session(&registry, now);
    registry.drain(now, Duration::ZERO, None, None, false);
    assert_eq!(open.tell(now), None);
    open.end(Ending::Forced);
    assert_eq!((registry.counts().told, registry.counts().forced), (0, 1));
}

/// After `undrain` those told keep their deadline; the others, and all that come, stay.
#[tokio::test]
async fn undrain_withdraws_what_has_not_been_told() {
    let registry = Registry::new();
    let now = Instant::now();
    let untold = session(&registry, now);
    let told = session(&registry, now);
    registry.drain(now, SECOND * 10, Some(SECOND * 4), None, false);
    assert!(told.tell(now).is_some());
    registry.undrain();
    assert!(told.orders().is_some());
    assert_eq!(untold.orders(), None);
    assert_eq!(session(&registry, now).orders(), None);
    drop((told, untold));
    assert!(!is_drained(&registry).await);
}

/// A connection that is still in setup at the deadline is cut off, also by a drain that came before it was looked at.
#[tokio::test(start_paused = true)]
async fn a_setup_is_cut_off_at_the_deadline() {
    let registry = Registry::new();
    let setup = registry.setup().expect("open for all");
    assert!(timeout(SECOND * 3_600, setup.cut_off()).await.is_err(), "no drain, no deadline");
    let begun = Instant::from(tokio::time::Instant::now());
    registry.drain(begun, SECOND * 5, None, None, false);
    setup.cut_off().await;
    assert_eq!(tokio::time::Instant::now().into_std() - begun, SECOND * 5);
}
