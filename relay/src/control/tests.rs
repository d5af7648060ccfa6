//! What the running relay makes of what happens to it.

use super::{Control, Event, Next, Stop, drained};
use crate::cluster::Cluster;
use crate::drain::Purpose;
use crate::node::Node;
use crate::overlap::Links;
use crate::role::Role;
use crate::supervise::Link;
use crate::worker::{Death, Ended, Workers};
use nix::libc::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use protocol::child::Command;
use protocol::cid::MemberId;
use protocol::keys::{BootId, Secret};
use protocol::message::{Generation, Stats};
use protocol::quinn::Endpoints;
use signal_hook_tokio::Signals;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);
const TEN_MINUTES: Duration = Duration::from_secs(600);

fn control(workers: Workers) -> Control {
    let node = Node::idle();
    Control {
        operators: false,
        links: Links::new(Generation(1), node.origin.clone(), node.role.subscribe()),
        node,
        workers,
        streams: Vec::new(),
        cluster: Cluster::none(),
        own: None,
        tls: None,
        drain_timeout: Duration::from_secs(10),
        drain_spread: None,
        endpoints: endpoints(),
        link: Link::Down,
        stop: Stop::default(),
        last_call: None,
    }
}

fn endpoints() -> Endpoints {
    let keys = Secret::from_bytes([7; 32]).child_keys(&BootId::from_bytes([7; 16]), Generation(1));
    Endpoints::with_keys(Generation(1), keys.into(), true)
}

/// When the sessions of this relay are closed at the latest, if it drains.
fn closes_in(control: &Control) -> Option<Duration> {
    let deadline = *control.node.registry.deadline().borrow();
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// A relay with one deaf socket would look alive while a part of the clients gets no answer.
#[tokio::test]
async fn a_worker_that_dies_ends_the_relay_with_its_name() {
    let (says, ended) = mpsc::unbounded_channel();
    let serving = control(Workers::ending_by(ended)).serve(Signals::new([SIGUSR1]).expect("signals"));
    let member = MemberId::new(3).expect("a member number");
    says.send(Ended { member, result: Err(Death::Panic("why".to_owned())) }).expect("it listens");
    let error = timeout(PATIENCE, serving).await.expect("it ends").expect_err("not orderly").to_string();
    assert!(error.contains("member 3") && error.contains("why"), "{error}");
}

/// Nobody told it to stop, so an orderly end of a worker is none.
#[tokio::test]
async fn a_worker_that_stops_unasked_ends_the_relay_too() {
    let mut control = control(Workers::none());
    let member = MemberId::new(0).expect("a member number");
    assert!(control.handle(Event::WorkerEnded(Ended { member, result: Ok(()) })).is_err());
}

/// The signals of an operator count; a `drain` of the supervisor and the first of them are one stop.
#[tokio::test]
async fn a_drain_and_a_signal_are_one_stop_and_two_signals_end_at_once() {
    for signals in [[SIGTERM, SIGINT], [SIGINT, SIGTERM], [SIGTERM, SIGTERM], [SIGINT, SIGINT]] {
        let mut control = control(Workers::none());
        let drain = Command::Drain { seq: 1, timeout: TEN_MINUTES, spread: None };
        assert_eq!(control.handle(Event::Command(drain)).expect("fine"), Next::Serve);
        assert!(closes_in(&control).is_some_and(|left| left > TEN_MINUTES / 2));
        for harmless in [SIGHUP, SIGUSR1] {
            assert_eq!(control.handle(Event::Signal(harmless)).expect("fine"), Next::Serve);
        }
        assert_eq!(control.handle(Event::Signal(signals[0])).expect("fine"), Next::Serve);
        let left = closes_in(&control).expect("it drains");
        assert!(left <= Duration::from_secs(10), "the shorter drain counts: {left:?}");
        assert_eq!(control.handle(Event::Signal(signals[1])).expect("fine"), Next::End);
    }
}

/// A relay without a supervisor could never be told to end.
#[tokio::test]
async fn a_relay_whose_supervisor_is_gone_drains_by_its_own_timeout() {
    let mut control = control(Workers::none());
    assert_eq!(control.handle(Event::Orphaned).expect("fine"), Next::Serve);
    assert!(closes_in(&control).is_some_and(|left| left <= Duration::from_secs(10)));
    assert!(matches!(*control.node.role.borrow(), Role::Draining { .. }));
}

/// Roles come and go; what does not concern this relay changes nothing.
#[tokio::test]
async fn orders_of_the_supervisor_change_the_role() {
    let mut control = control(Workers::none());
    let drain = Command::Drain { seq: 4, timeout: TEN_MINUTES, spread: None };
    for (command, role) in [
        (Command::Standby { seq: 1 }, "standby"),
        (Command::Activate { seq: 2 }, "active"),
        (Command::Canary { seq: 3, permille: 10 }, "canary"),
        (Command::Alone, "canary"),
        (Command::Reload, "canary"),
        (Command::Gro { on: true }, "canary"),
        (Command::Counters { speaks: true, settled: true, generations: Vec::new(), gone: Stats::default() }, "canary"),
        (drain, "draining"),
        (Command::Activate { seq: 5 }, "draining"),
        (Command::Undrain { seq: 6 }, "active"),
    ] {
        assert_eq!(control.handle(Event::Command(command)).expect("fine"), Next::Serve);
        assert_eq!(control.node.role.borrow().name(), role);
    }
    assert_eq!(closes_in(&control), None, "undrain took the deadline back");
}

/// First flights that the kernel had queued before newcomers were steered away have no other process to go to before
/// their clients try again: a relay without sessions must not end before it has looked.
#[tokio::test]
async fn a_drain_that_finds_nobody_takes_on_what_was_on_its_way() {
    let mut control = control(Workers::none());
    control.signal(SIGTERM);
    let last_call = control.last_call.expect("it drains");
    let registry = &control.node.registry;
    assert!(timeout(Duration::from_millis(1), drained(registry, Some(last_call))).await.is_err());
    let late = registry.setup().expect("it is served").open(Instant::now(), Purpose::Subscribe);
    assert!(late.orders().is_some_and(|slot| slot.close > last_call), "told at once, and with time to leave");
    drop(late);
    timeout(PATIENCE, drained(registry, Some(last_call))).await.expect("it ends");
    assert!(Instant::now() >= last_call && registry.setup().is_none());
}
