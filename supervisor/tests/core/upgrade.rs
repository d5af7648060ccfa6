//! The life of an upgrade, from the first generation to commit and drain.

use crate::life::{Life, done, failed_with, ms, secs, settings};
use protocol::message::{FromChild, Generation};
use supervisor::core::snapshot::{PhaseView, StageView, StateView};
use supervisor::core::{Deny, Event, ExitStatus, Note, Outcome, Settings};

#[test]
fn the_first_generation_is_steered_to_before_it_is_told() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    assert_eq!(life.orders(), ["spawn 1"]);
    life.adopt(1);
    assert_eq!(life.orders(), ["adopt 1 gro on"]);
    life.says(1, FromChild::Ready);
    assert_eq!(life.orders(), ["steer 1 of 1"]);
    assert!(!life.noted(&Note::Serving));
    life.feed(Event::Steered { active: Generation(1) });
    assert_eq!(life.orders(), ["gro on", "tell 1 activate"]);
    assert!(life.noted(&Note::Serving));
    assert_eq!(life.snapshot().phase, PhaseView::Serving);
}

#[test]
fn a_second_start_changes_nothing() {
    let mut life = Life::serving(settings());
    life.feed(Event::Start);
    assert!(life.out.is_empty());
}

#[test]
fn an_upgrade_goes_through_standby_and_probation_to_drain() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    assert_eq!(life.orders(), ["spawn 2"]);
    life.adopt(2);
    assert_eq!(life.orders(), ["gro off", "tell 1 gro off", "adopt 2 gro off"]);
    life.says(2, FromChild::Ready);
    assert_eq!(life.orders(), ["gro off", "steer 2 of 1 2"]);
    assert_eq!(life.snapshot().upgrade.unwrap().stage, StageView::Switching);
    life.feed(Event::Steered { active: Generation(2) });
    assert_eq!(life.orders(), ["tell 2 activate", "tell 1 standby"]);
    assert_eq!(life.state(1), Some(StateView::Standby));
    life.acknowledge(1);
    life.acknowledge(2);
    life.pass(ms(1999));
    assert_eq!(life.orders(), [""; 0]);
    life.pass(ms(1));
    assert_eq!(life.orders(), ["tell 1 drain 600000", "answer 1"]);
    assert_eq!(life.answer(waiter), done(2).as_ref());
    life.acknowledge(1);
    life.exits(1, ExitStatus::Code(0));
    assert_eq!(life.orders(), ["steer 2 of 2", "retire 1", "gro on", "tell 2 gro on", "tell 2 alone"]);
}

#[test]
fn without_a_probation_the_commit_comes_with_the_switch() {
    let mut life = Life::serving(Settings { probation: secs(0), health: true, ..settings() });
    let waiter = life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Ready);
    assert_eq!(life.orders(), ["gro off", "steer 2 of 1 2"]);
    life.steered();
    assert_eq!(life.answer(waiter), done(2).as_ref());
    assert_eq!(life.orders()[2..], ["tell 2 activate", "tell 1 standby", "tell 1 drain 600000", "answer 1"]);
}

#[test]
fn triggers_in_flight_fold_into_one_more_upgrade_with_its_own_outcome() {
    let mut life = Life::serving(settings());
    let first = life.upgrade();
    let (second, third) = (life.upgrade(), life.upgrade());
    assert!(life.out.is_empty() && life.snapshot().queued);
    life.crashes(2);
    life.spawned(3);
    assert!(life.answer(first).is_none());
    life.bring_up(3);
    life.pass(secs(2));
    assert_eq!((life.answer(second), life.answer(third)), (done(3).as_ref(), done(3).as_ref()));
    assert!(!life.snapshot().queued);
}

#[test]
fn the_waiter_of_a_failed_upgrade_learns_why_before_the_folded_one_begins() {
    let mut life = Life::serving(settings());
    let first = life.upgrade();
    let second = life.upgrade();
    life.spawned(2);
    life.exits(2, ExitStatus::Code(3));
    assert_eq!(failed_with(&life, first), "exited with status 3 before it was ready");
    assert_eq!(life.answer(second), None);
    assert_eq!(life.orders(), ["answer 1", "spawn 3", "retire 2"]);
}

#[test]
fn a_trigger_before_the_first_is_ready_folds() {
    let mut life = Life::new(settings());
    let before = life.upgrade();
    life.feed(Event::Start);
    let during = life.upgrade();
    life.bring_up(1);
    assert_eq!(life.orders().last().unwrap(), "spawn 2");
    life.bring_up(2);
    life.pass(secs(2));
    assert_eq!((life.answer(before), life.answer(during)), (done(2).as_ref(), done(2).as_ref()));
}

#[test]
fn at_max_generations_an_upgrade_is_denied_and_names_the_oldest() {
    let mut life = Life::with_generations(Settings { max_generations: 3, ..settings() }, 3);
    life.sessions(1, 41);
    life.pass(secs(10));
    let waiter = life.upgrade();
    let denied = Deny::TooMany { oldest: Generation(1), sessions: 41, left: secs(588) };
    assert_eq!(life.answer(waiter), Some(&Outcome::Denied(denied)));
    life.feed(Event::Upgrade { waiter: None, evict_oldest: false });
    assert!(life.warned("upgrade denied"));
}

#[test]
fn evict_oldest_kills_it_and_waits_until_it_is_gone() {
    let mut life = Life::with_generations(Settings { max_generations: 3, ..settings() }, 3);
    let waiter = life.waiter();
    life.feed(Event::Upgrade { waiter: Some(waiter), evict_oldest: true });
    assert_eq!(life.orders(), ["kill 1"]);
    assert_eq!(life.snapshot().upgrade.unwrap().stage, StageView::MakingRoom);
    life.exits(1, ExitStatus::Signal(9));
    assert_eq!(life.orders(), ["steer 3 of 2 3", "retire 1", "spawn 4"]);
    life.bring_up(4);
    life.pass(secs(2));
    assert_eq!(life.answer(waiter), done(4).as_ref());
}

#[test]
fn an_upgrade_waits_for_a_place_that_is_about_to_be_free() {
    let mut life = Life::serving(Settings { max_generations: 2, ..settings() });
    life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Failed { error: "no".to_owned() });
    life.upgrade();
    assert!(life.orders().is_empty());
    life.exits(2, ExitStatus::Code(1));
    assert_eq!(life.orders()[..2], ["retire 2", "spawn 3"]);
}

#[test]
fn four_generations_live_each_with_its_sessions() {
    let life = Life::with_generations(settings(), 4);
    let states: Vec<_> = life.snapshot().generations.iter().map(|view| view.state).collect();
    assert_eq!(states, [StateView::Draining, StateView::Draining, StateView::Draining, StateView::Active]);
}

#[test]
fn a_drain_that_is_not_acknowledged_becomes_sigterm() {
    let (mut life, _) = Life::on_probation(settings());
    life.pass(secs(2));
    life.pass(ms(999));
    assert!(life.orders().is_empty());
    life.pass(ms(1));
    assert_eq!(life.orders(), ["term 1"]);
    assert!(life.warned("does not acknowledge drain"));
}

#[test]
fn a_drain_over_a_lost_channel_is_sigterm_at_once() {
    let (mut life, _) = Life::on_probation(settings());
    life.loses_channel(1);
    assert!(life.warned("can't be told"));
    life.pass(secs(2));
    assert_eq!(life.orders(), ["term 1", "answer 1"]);
}

#[test]
fn a_standby_that_is_not_acknowledged_is_only_logged() {
    let (mut life, _) = Life::on_probation(settings());
    life.pass(secs(1));
    assert!(life.orders().is_empty());
    assert!(life.warned("does not acknowledge standby"));
}

#[test]
fn one_that_overstays_its_drain_is_killed_two_seconds_after_its_deadline() {
    let mut life = Life::with_generations(settings(), 2);
    life.pass(ms(601_999));
    assert!(life.orders().is_empty());
    life.pass(ms(1));
    assert_eq!(life.orders(), ["kill 1"]);
    life.exits(1, ExitStatus::Signal(9));
    assert_eq!(life.state(2), Some(StateView::Active));
}

#[test]
fn a_channel_that_breaks_before_a_drain_is_acknowledged_makes_it_a_signal() {
    let (mut life, _) = Life::on_probation(settings());
    life.acknowledge(2);
    life.acknowledge(1);
    life.pass(secs(2));
    life.loses_channel(1);
    assert_eq!(life.orders(), ["term 1"]);
}

#[test]
fn a_channel_that_breaks_before_another_role_is_acknowledged_makes_nothing_of_it() {
    let (mut life, _) = Life::on_probation(settings());
    life.loses_channel(1);
    assert!(life.orders().is_empty(), "{:?}", life.orders());
}

/// One of those who asked meanwhile wants it badly enough.
#[test]
fn a_folded_upgrade_evicts_when_any_of_its_triggers_asked_for_it() {
    for (triggers, evicts) in [([true, false], true), ([false, true], true), ([false, false], false)] {
        let mut life = Life::with_generations(settings(), 3);
        life.upgrade();
        life.bring_up(4);
        for evict_oldest in triggers {
            life.feed(Event::Upgrade { waiter: None, evict_oldest });
        }
        life.pass(secs(2));
        let killed = life.orders().iter().any(|order| order.starts_with("kill 1"));
        assert_eq!(killed, evicts, "{triggers:?}: {:?}", life.orders());
    }
}

/// Such a check was of an upgrade that is over.
#[test]
fn the_check_of_another_generation_means_nothing() {
    let mut life = Life::serving(Settings { check: true, ..settings() });
    life.upgrade();
    assert_eq!(life.orders(), ["check 2"]);
    life.feed(Event::Checked { generation: Generation(3), result: Ok(()) });
    assert!(life.orders().is_empty(), "{:?}", life.orders());
}

/// A trigger that nobody waits for (a signal) is answered in the log alone.
#[test]
fn a_denial_that_nobody_waits_for_is_said_with_its_reason() {
    let mut life = Life::with_generations(settings(), 4);
    life.feed(Event::Upgrade { waiter: None, evict_oldest: false });
    assert!(life.warned("upgrade denied: as many generations live as may; the oldest, 1,"), "{:?}", life.out);
    life.feed(Event::Rollback { waiter: None });
    assert!(life.warned("rollback denied: no probation is running"), "{:?}", life.out);
    life.feed(Event::Stop);
    life.feed(Event::Upgrade { waiter: None, evict_oldest: false });
    assert!(life.warned("upgrade denied: the service is stopping"), "{:?}", life.out);
}
