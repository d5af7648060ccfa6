//! Stop, leave and reload in every state.

use crate::life::{Life, hello, ms, secs, settings};
use protocol::message::{FromChild, Generation, Hello};
use supervisor::core::snapshot::PhaseView;
use supervisor::core::{Deny, Event, ExitStatus, Note, Outcome, Settings};

/// Lives in every phase, with the generations that are there.
fn everywhere() -> Vec<(&'static str, Life)> {
    let mut idle_with_queue = Life::new(settings());
    idle_with_queue.upgrade();
    let mut spawning = Life::new(settings());
    spawning.feed(Event::Start);
    let mut first = Life::new(settings());
    first.feed(Event::Start);
    first.adopt(1);
    let mut first_failed = Life::new(settings());
    first_failed.feed(Event::Start);
    first_failed.adopt(1);
    first_failed.says(1, FromChild::Failed { error: "no".to_owned() });
    let mut checking = Life::serving(Settings { check: true, ..settings() });
    checking.upgrade();
    let mut starting = Life::serving(settings());
    starting.upgrade();
    starting.spawned(2);
    let mut switching = Life::serving(settings());
    switching.upgrade();
    switching.adopt(2);
    switching.says(2, FromChild::Ready);
    let mut rolled_back = Life::on_probation(settings()).0;
    rolled_back.rollback();
    let mut probed = Life::on_probation(Settings { health: true, ..settings() }).0;
    probed.acknowledge(1);
    let mut making_room = Life::with_generations(Settings { max_generations: 2, ..settings() }, 2);
    making_room.feed(Event::Upgrade { waiter: None, evict_oldest: true });
    let mut respawning = Life::serving(settings());
    respawning.crashes(1);
    let mut backing_off = Life::serving(settings());
    backing_off.crashes(1);
    backing_off.spawn_fails(2);
    let mut standing_in = Life::with_generations(settings(), 2);
    standing_in.crashes(2);
    for generation in 3..6 {
        standing_in.spawn_fails(generation);
        standing_in.steered();
        standing_in.pass_to_deadline();
    }
    vec![
        ("idle", idle_with_queue),
        ("spawning", spawning),
        ("first", first),
        ("first failed", first_failed),
        ("serving", Life::serving(settings())),
        ("checking", checking),
        ("starting", starting),
        ("switching", switching),
        ("probation", Life::on_probation(settings()).0),
        ("probed", probed),
        ("rolled back", rolled_back),
        ("making room", making_room),
        ("draining", Life::with_generations(settings(), 4)),
        ("respawning", respawning),
        ("backing off", backing_off),
        ("standing in", standing_in),
    ]
}

fn live(life: &Life) -> Vec<u32> {
    life.snapshot().generations.iter().map(|view| view.generation.0).collect()
}

/// Everything that is ordered but has no process gets one, and everything that lives ends.
fn end_all(life: &mut Life) -> Option<u8> {
    let mut exit = life.exit_status();
    for generation in live(life) {
        life.spawned(generation);
        life.exits(generation, ExitStatus::Signal(9));
        exit = exit.or_else(|| life.exit_status());
    }
    exit
}

#[test]
fn a_stop_ends_from_every_state() {
    for (name, mut life) in everywhere() {
        life.feed(Event::Stop);
        let expected = if name == "first failed" { 8 } else { 0 };
        assert_eq!(end_all(&mut life), Some(expected), "{name}");
    }
}

#[test]
fn a_stop_ends_from_every_state_even_if_no_child_cooperates() {
    for (name, mut life) in everywhere() {
        life.feed(Event::Stop);
        life.pass(secs(20));
        for generation in live(&life) {
            life.spawned(generation);
        }
        life.pass(secs(20));
        // Not even SIGKILL ended those that are left.
        assert_eq!(life.snapshot().phase, PhaseView::Ended, "{name}");
    }
}

#[test]
fn a_second_stop_kills_all_at_once() {
    for (name, mut life) in everywhere() {
        for generation in live(&life) {
            life.spawned(generation);
        }
        let live = live(&life);
        life.feed(Event::Stop);
        let mut orders = life.orders();
        life.feed(Event::Stop);
        orders.extend(life.orders());
        let killed: Vec<_> = orders.into_iter().filter(|order| order.starts_with("kill")).collect();
        // The evicted one has been killed before.
        let to_kill = live.into_iter().filter(|generation| name != "making room" || *generation != 1);
        let expected: Vec<_> = to_kill.map(|generation| format!("kill {generation}")).collect();
        assert_eq!(killed, expected, "{name}");
        life.feed(Event::Stop);
        assert!(life.orders().is_empty(), "{name}");
        assert!(end_all(&mut life).is_some() || life.snapshot().phase == PhaseView::Ended, "{name}");
    }
}

#[test]
fn nothing_cancels_a_stop() {
    for (name, mut life) in everywhere() {
        life.feed(Event::Stop);
        let upgrade = life.upgrade();
        assert_eq!(life.answer(upgrade), Some(&Outcome::Denied(Deny::Stopping)), "{name}");
        let rollback = life.rollback();
        assert_eq!(life.answer(rollback), Some(&Outcome::Denied(Deny::Stopping)), "{name}");
        life.feed(Event::Reload);
        assert!(life.out.is_empty(), "{name}");
        life.feed(Event::Leave { stored: true });
        assert!(life.warned("leave denied") || life.snapshot().phase == PhaseView::Ended, "{name}");
        life.feed(Event::Start);
        assert!(life.out.is_empty(), "{name}");
        assert!(end_all(&mut life).is_some() || life.snapshot().phase == PhaseView::Ended, "{name}");
    }
}

#[test]
fn a_stop_drains_with_the_child_own_timeout_unless_told() {
    let serving = |stop_timeout, drain_timeout_ms| {
        let mut life = Life::new(Settings { stop_timeout, ..settings() });
        life.feed(Event::Start);
        life.spawned(1);
        life.says(1, FromChild::Hello(Hello { drain_timeout_ms, ..hello() }));
        life.feed(Event::Adopted { generation: Generation(1) });
        life.says(1, FromChild::Ready);
        life.steered();
        life.feed(Event::Stop);
        assert!(life.noted(&Note::Stopping));
        life.orders()
    };
    assert_eq!(serving(None, None), ["tell 1 drain 10000"]);
    assert_eq!(serving(None, Some(3_000)), ["tell 1 drain 3000"]);
    assert_eq!(serving(Some(secs(5)), Some(3_000)), ["tell 1 drain 5000"]);
}

#[test]
fn a_stop_shortens_drains_and_lengthens_none() {
    let mut life = Life::with_generations(Settings { drain_timeout: secs(12), ..settings() }, 2);
    life.pass(secs(1));
    life.feed(Event::Stop);
    assert_eq!(life.orders(), ["tell 1 drain 10000", "tell 2 drain 10000"]);
    let mut life = Life::with_generations(Settings { drain_timeout: secs(8), ..settings() }, 2);
    life.feed(Event::Stop);
    assert_eq!(life.orders(), ["tell 2 drain 10000"]);
}

#[test]
fn a_stop_shortens_a_drain_by_signal_too() {
    let (mut life, _) = Life::on_probation(settings());
    life.pass(secs(4));
    life.feed(Event::Stop);
    assert_eq!(life.orders(), ["tell 2 drain 10000"]);
    life.pass(secs(12));
    assert!(life.orders().contains(&"kill 1".to_owned()));
}

#[test]
fn a_stop_that_is_not_acknowledged_becomes_sigterm_then_sigkill() {
    let mut life = Life::serving(settings());
    life.feed(Event::Stop);
    life.pass(secs(1));
    assert_eq!(life.orders(), ["term 1"]);
    life.pass(ms(10_999));
    assert!(life.orders().is_empty());
    life.pass(ms(1));
    assert_eq!(life.orders(), ["kill 1"]);
}

#[test]
fn a_stop_waits_for_the_process_that_was_just_ordered() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.feed(Event::Stop);
    assert!(life.orders().is_empty());
    life.spawned(1);
    assert_eq!(life.orders(), ["term 1"]);
    life.exits(1, ExitStatus::Signal(15));
    assert_eq!(life.exit_status(), Some(0));
}

#[test]
fn every_waiter_is_denied_at_a_stop() {
    let mut life = Life::serving(settings());
    let (first, folded) = (life.upgrade(), life.upgrade());
    life.feed(Event::Stop);
    let denied = Outcome::Denied(Deny::Stopping);
    assert_eq!((life.answer(first), life.answer(folded)), (Some(&denied), Some(&denied)));
    let (mut life, waiter) = Life::on_probation(settings());
    life.feed(Event::Stop);
    assert_eq!(life.answer(waiter), Some(&denied));
}

#[test]
fn leave_is_denied_unless_everything_is_stored() {
    for (name, mut life) in everywhere() {
        let phase = life.snapshot().phase;
        life.feed(Event::Leave { stored: false });
        assert!(life.warned("leave denied"), "{name}");
        assert_eq!(life.snapshot().phase, phase, "{name}");
    }
}

#[test]
fn leave_ends_the_unready_and_leaves_the_others() {
    for (name, mut life) in everywhere() {
        if name == "first failed" {
            continue;
        }
        life.feed(Event::Leave { stored: true });
        let mut exit = life.exit_status();
        for view in life.snapshot().generations {
            if exit.is_none() && view.state.as_str() == "ending" {
                life.spawned(view.generation.0);
                life.exits(view.generation.0, ExitStatus::Signal(15));
                exit = life.exit_status();
            }
        }
        assert_eq!(exit, Some(0), "{name}");
        let ready =
            life.snapshot().generations.iter().all(|view| !matches!(view.state.as_str(), "starting" | "ending"));
        assert!(ready, "{name}");
    }
}

#[test]
fn while_leaving_requests_are_denied_and_a_stop_wins() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.spawned(2);
    life.feed(Event::Leave { stored: true });
    let denied = Outcome::Denied(Deny::Leaving);
    assert_eq!(life.answer(waiter), Some(&denied));
    assert_eq!(life.orders(), ["answer 1", "term 2"]);
    assert_eq!(life.snapshot().active, Some(Generation(1)));
    let upgrade = life.upgrade();
    assert_eq!(life.answer(upgrade), Some(&denied));
    life.feed(Event::Leave { stored: true });
    assert!(life.out.is_empty());
    let rollback = life.rollback();
    assert_eq!(life.answer(rollback), Some(&denied));
    life.feed(Event::Stop);
    assert_eq!(life.orders(), ["tell 1 drain 10000"]);
    assert_eq!(end_all(&mut life), Some(0));
}

#[test]
fn an_active_one_that_dies_while_leaving_keeps_its_sockets_for_the_next_supervisor() {
    let mut life = Life::serving(settings());
    life.upgrade();
    life.spawned(2);
    life.feed(Event::Leave { stored: true });
    life.crashes(1);
    assert!(life.orders().is_empty());
    life.exits(2, ExitStatus::Signal(15));
    assert_eq!(life.orders(), ["retire 2", "exit 0"]);
}

#[test]
fn reload_goes_to_those_that_have_their_sockets() {
    let mut life = Life::with_generations(settings(), 3);
    life.upgrade();
    life.spawned(4);
    life.feed(Event::Reload);
    assert_eq!(life.orders(), ["tell 1 reload", "tell 2 reload", "tell 3 reload"]);
    life.says(4, FromChild::Hello(hello()));
    life.feed(Event::Adopted { generation: Generation(4) });
    life.loses_channel(1);
    life.feed(Event::Reload);
    assert_eq!(life.orders(), ["tell 2 reload", "tell 3 reload", "tell 4 reload"]);
}

#[test]
fn nothing_happens_after_the_end() {
    let mut life = Life::new(settings());
    life.feed(Event::Stop);
    assert_eq!(life.orders(), ["exit 0"]);
    life.feed(Event::Stop);
    life.feed(Event::Tick);
    assert!(life.out.is_empty());
}
