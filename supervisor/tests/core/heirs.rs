//! Who answers for the dead, and for how long.

use crate::life::{Life, hello, ms, secs, settings};
use protocol::message::{FromChild, Generation, Hello};
use std::time::Duration;
use supervisor::core::{Action, Core, Event, ExitStatus, Settings};

/// After its exit, for one that names no idle timeout.
pub(crate) const RETENTION: Duration = Duration::from_secs(40);

/// The successor serves the dead one's sockets: what waits in them would go unanswered until the switch.
#[test]
fn a_successor_answers_for_the_dead_one_as_soon_as_it_has_its_sockets() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    assert_eq!(life.heirs(), [""; 0]);
    life.adopt(2);
    assert_eq!(life.heirs(), ["heir 2 of 1"]);
    life.says(2, FromChild::Ready);
    life.steered();
    assert_eq!(life.heirs(), [""; 0], "it is told once");
}

#[test]
fn a_successor_that_fails_is_followed_by_one_that_answers_for_both() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    life.adopt(2);
    life.crashes(2);
    life.pass_to_deadline();
    life.adopt(3);
    assert_eq!(life.heirs(), ["heir 3 of 1 2"]);
}

#[test]
fn the_standby_that_takes_over_answers_for_the_failed_one_once_it_is_gone() {
    let (mut life, _) = Life::on_probation(settings());
    life.crashes(2);
    assert_eq!(life.heirs(), ["heir 1 of 2"]);

    let (mut life, _) = Life::on_probation(settings());
    life.rollback();
    life.steered();
    assert_eq!(life.heirs(), [""; 0], "the failed one lives still");
    life.exits(2, ExitStatus::Code(0));
    assert_eq!(life.heirs(), ["heir 1 of 2"]);
}

/// Evicted, killed at its deadline, crashed: its clients don't know it. One that has drained to its end has told them.
#[test]
fn the_active_one_answers_for_whoever_ends_without_a_word() {
    for (status, heirs) in [
        (ExitStatus::Code(0), "forget 1"),
        (ExitStatus::Code(1), "heir 3 of 1"),
        (ExitStatus::Signal(9), "heir 3 of 1"),
        (ExitStatus::Unknown, "heir 3 of 1"),
        // Its clients may be well.
        (ExitStatus::Lost, "forget 1"),
    ] {
        let mut life = Life::with_generations(settings(), 3);
        life.exits(1, status);
        assert_eq!(life.heirs(), [heirs]);
    }
}

#[test]
fn the_next_active_one_answers_for_all_that_are_remembered() {
    let mut life = Life::with_generations(settings(), 3);
    life.crashes(1);
    life.crashes(2);
    life.upgrade();
    life.spawned(4);
    life.says(4, FromChild::Hello(hello()));
    assert_eq!(life.heirs(), [""; 0], "it has no sockets");
    life.feed(Event::Adopted { generation: Generation(4) });
    assert_eq!(life.heirs(), ["heir 4 of 1 2"], "it gets their packets from the switch on, and must know by then");
    life.says(4, FromChild::Ready);
    life.steered();
    assert_eq!(life.heirs(), [""; 0]);
}

/// Whoever stands in gets the packets, and was not told of the dead since it drains.
#[test]
fn a_stand_in_answers_for_the_dead() {
    let mut life = Life::with_generations(settings(), 2);
    life.crashes(2);
    let mut next = 3;
    while next < 6 {
        life.spawned(next);
        life.crashes(next);
        next += 1;
        while !life.orders().contains(&format!("spawn {next}")) && life.heirs().is_empty() {
            life.steered();
            life.pass_to_deadline();
        }
    }
    life.steered();
    let told = |life: &Life| life.heirs().iter().any(|heir| heir == "heir 1 of 2");
    assert!(
        told(&life) || {
            life.pass(ms(1));
            told(&life)
        },
        "{:?}",
        life.heirs()
    );
}

/// Nobody gets the packets of the dead any more, and a stop may take minutes.
#[test]
fn in_a_stop_the_youngest_that_drains_answers_for_whoever_dies() {
    let mut life = Life::with_generations(settings(), 4);
    life.crashes(1);
    assert_eq!(life.heirs(), ["heir 4 of 1"]);
    life.feed(Event::Stop);
    assert_eq!(life.heirs(), [""; 0], "it knows");
    (2..=4).for_each(|generation| life.acknowledge(generation));
    life.crashes(2);
    assert_eq!(life.heirs(), ["heir 4 of 2"]);
    life.crashes(4);
    assert_eq!(life.heirs(), ["heir 3 of 1 2 4"], "the one before may have died of its first task");
    life.crashes(3);
    assert_eq!(life.heirs(), [""; 0], "nobody is left");
    assert_eq!(life.exit_status(), Some(0));
}

#[test]
fn in_a_stop_who_does_not_listen_is_not_waited_for() {
    let stopping = || {
        let mut life = Life::with_generations(settings(), 3);
        life.feed(Event::Stop);
        (1..=2).for_each(|generation| life.acknowledge(generation));
        life
    };
    let mut unacknowledged = stopping();
    unacknowledged.crashes(1);
    assert_eq!(unacknowledged.heirs(), ["heir 3 of 1"]);
    unacknowledged.pass(secs(1));
    assert_eq!(unacknowledged.heirs(), ["heir 2 of 1"]);
    let mut cut_off = stopping();
    cut_off.loses_channel(3);
    cut_off.crashes(1);
    assert_eq!(cut_off.heirs(), ["heir 2 of 1"]);
    let mut at_once = stopping();
    at_once.feed(Event::Stop);
    at_once.exits(1, ExitStatus::Signal(9));
    assert_eq!(at_once.heirs(), [""; 0], "all are killed");
}

/// Killed at its deadline while others have longer; and one of which nobody knows whether it lives.
#[test]
fn in_a_stop_too_nobody_answers_for_one_that_lives() {
    let mut life = Life::with_generations(Settings { drain_timeout: secs(5), ..settings() }, 2);
    life.feed(Event::Stop);
    (1..=2).for_each(|generation| life.acknowledge(generation));
    life.pass(secs(7));
    assert_eq!(life.orders(), ["kill 1"]);
    assert_eq!(life.heirs(), [""; 0], "it has not been reaped");
    life.exits(1, ExitStatus::Signal(9));
    assert_eq!(life.heirs(), ["heir 2 of 1"]);
    let mut life = Life::with_generations(settings(), 2);
    life.feed(Event::Stop);
    life.exits(1, ExitStatus::Lost);
    assert_eq!(life.heirs(), ["forget 1"]);
}

#[test]
fn the_dead_are_forgotten_when_their_clients_have_given_up() {
    for (idle_timeout_ms, retention) in
        [(None, RETENTION), (Some(10_000), secs(20)), (Some(u64::MAX), secs(3_610)), (Some(0), secs(10))]
    {
        let mut life = Life::new(settings());
        life.feed(Event::Start);
        life.spawned(1);
        life.says(1, FromChild::Hello(Hello { idle_timeout_ms, ..hello() }));
        life.feed(Event::Adopted { generation: Generation(1) });
        life.says(1, FromChild::Ready);
        life.steered();
        life.crashes(1);
        life.bring_up(2);
        life.pass(retention - ms(1));
        assert_eq!(life.heirs(), [""; 0]);
        life.pass(ms(1));
        assert_eq!(life.heirs(), ["forget 1"]);
        life.upgrade();
        life.bring_up(3);
        assert_eq!(life.heirs(), [""; 0]);
    }
}

#[test]
fn one_that_never_had_sockets_leaves_nothing() {
    let mut life = Life::serving(settings());
    life.upgrade();
    life.spawned(2);
    life.crashes(2);
    assert_eq!(life.heirs(), [""; 0]);
    assert_eq!(life.core.mourned(), []);
}

/// A crash loop must fill neither memory nor the fd store.
#[test]
fn of_a_crash_loop_the_last_ones_are_remembered() {
    let mut life = Life::serving(settings());
    let mut forgotten = 0;
    for generation in 1..60 {
        life.crashes(generation);
        while life.core.next_generation() == generation + 1 {
            life.pass_to_deadline();
        }
        life.bring_up(generation + 1);
        assert!(life.core.mourned().len() <= 32);
        forgotten = life.core.mourned().first().map_or(forgotten, |oldest| oldest.0 - 1);
    }
    assert!(forgotten > 0);
}

/// What never came to serve has hardly a client; the one that the crash loop began with has them all.
#[test]
fn who_served_is_not_forgotten_for_those_that_never_did() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    for generation in 1..60 {
        life.spawned(generation);
        life.says(generation, FromChild::Hello(Hello { idle_timeout_ms: Some(3_600_000), ..hello() }));
        life.feed(Event::Adopted { generation: Generation(generation) });
        if generation == 1 {
            life.says(1, FromChild::Ready);
            life.steered();
        }
        life.crashes(generation);
        if generation > 33 {
            assert_eq!(life.heirs(), [format!("forget {}", generation - 31)], "the oldest that never served");
        }
        while life.core.next_generation() == generation + 1 {
            life.pass_to_deadline();
        }
    }
    assert_eq!(life.core.mourned().len(), 32);
    assert!(life.core.mourned().contains(&Generation(1)));
}

/// The state is written before the order is carried out, so it may have got lost.
#[test]
fn another_supervisor_says_it_again() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    life.bring_up(2);
    let saved = serde_json::to_string(&life.core).unwrap();
    let saved: Core = serde_json::from_str(&saved).unwrap();
    let mut core = Core::restored(saved, settings()).unwrap();
    let mut out = Vec::new();
    core.handle(life.now, Event::Resume { upgrade: false }, &mut out);
    let heir = Action::Heir { generation: Generation(2), dead: vec![Generation(1)] };
    assert!(out.contains(&heir), "{out:?}");
}

/// To answer for one that lives would be to end its connections.
#[test]
fn a_state_in_which_a_live_one_is_dead_is_not_believed() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    life.bring_up(2);
    let mut saved = serde_json::to_value(&life.core).unwrap();
    let gone = saved["mourned"].as_object_mut().unwrap();
    let when = gone["1"].clone();
    gone.insert("2".to_owned(), when);
    let saved: Core = serde_json::from_value(saved).unwrap();
    assert_eq!(Core::restored(saved, settings()), None);
}

/// When the numbers begin again, those of the dead are used again.
#[test]
fn new_keys_come_with_nobody_to_answer_for() {
    let settings = Settings { max_generations: 2, ..settings() };
    let mut life = Life::serving(settings);
    let mut saved = serde_json::to_value(&life.core).unwrap();
    saved["next"] = 65_536.into();
    life.core = serde_json::from_value(saved).unwrap();
    life.feed_unwatched(Event::Exited { generation: Generation(1), status: ExitStatus::Signal(9) });
    let forget = life.out.iter().position(|action| *action == Action::Forget { generation: Generation(1) });
    let rekey = life.out.iter().position(|action| *action == Action::Rekey);
    assert!(forget.zip(rekey).is_some_and(|(forget, rekey)| forget < rekey), "{:?}", life.out);
    assert_eq!(life.core.mourned(), []);
}
