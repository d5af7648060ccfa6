//! Probation, health probes and rollback.

use crate::life::{Life, ms, secs, settings};
use protocol::message::{FromChild, Generation};
use supervisor::core::snapshot::{StageView, StateView};
use supervisor::core::{Deny, Event, ExitStatus, Outcome, RequestId, Settings};

fn probed(generation: u32, result: Result<(), &str>) -> Event {
    Event::Probed { generation: Generation(generation), result: result.map_err(str::to_owned) }
}

fn with_probes() -> (Life, RequestId) {
    let (mut life, waiter) = Life::on_probation(Settings { health: true, ..settings() });
    life.acknowledge(1);
    assert_eq!(life.orders(), ["probe 2"]);
    (life, waiter)
}

fn rolled_back(life: &Life, waiter: RequestId) -> String {
    match life.answer(waiter) {
        Some(Outcome::RolledBack { generation: Generation(2), reason }) => reason.clone(),
        other => panic!("not rolled back: {other:?}"),
    }
}

#[test]
fn every_end_of_the_new_one_in_its_probation_is_a_rollback_without_goaway() {
    for status in [ExitStatus::Code(0), ExitStatus::Code(1), ExitStatus::Signal(11), ExitStatus::Unknown] {
        let (mut life, waiter) = Life::on_probation(settings());
        life.exits(2, status);
        let back =
            ["steer 1 of 1", "tell 1 activate", "answer 1", "retire 2", "gro on", "tell 1 gro on", "tell 1 alone"];
        assert_eq!(life.orders(), back);
        assert!(rolled_back(&life, waiter).contains("in its probation"));
        assert_eq!(life.state(1), Some(StateView::Active));
    }
}

#[test]
fn one_that_is_unhealthy_in_its_probation_is_rolled_back_and_killed() {
    let (mut life, waiter) = Life::on_probation(settings());
    life.says(2, FromChild::Unhealthy { reason: "no memory".to_owned() });
    assert_eq!(life.orders(), ["steer 1 of 1 2", "tell 1 activate", "term 2", "answer 1"]);
    assert_eq!(rolled_back(&life, waiter), "unhealthy: no memory");
    life.pass(secs(2));
    assert_eq!(life.orders(), ["kill 2"]);
    life.exits(2, ExitStatus::Signal(9));
    assert_eq!(life.orders()[..2], ["steer 1 of 1", "retire 2"]);
}

#[test]
fn one_that_says_failed_in_its_probation_is_rolled_back_and_may_end_by_itself() {
    let (mut life, waiter) = Life::on_probation(settings());
    life.says(2, FromChild::Failed { error: "port lost".to_owned() });
    assert_eq!(life.orders(), ["steer 1 of 1 2", "tell 1 activate", "answer 1"]);
    assert_eq!(rolled_back(&life, waiter), "port lost");
}

#[test]
fn one_that_cannot_be_told_anything_is_rolled_back() {
    let (mut life, waiter) = Life::on_probation(settings());
    life.acknowledge(1);
    life.acknowledge(2);
    life.loses_channel(2);
    assert!(life.orders().is_empty());
    // The driver calls then and not before.
    assert_eq!(life.core.next_deadline(), Some(life.now.after(secs(1))));
    life.pass_to_deadline();
    assert_eq!(life.orders()[0], "steer 1 of 1 2");
    assert_eq!(rolled_back(&life, waiter), "closed");
}

#[test]
fn a_rollback_by_hand_answers_both_requests() {
    let (mut life, waiter) = Life::on_probation(settings());
    let by_hand = life.rollback();
    assert_eq!(rolled_back(&life, waiter), "rolled back by request");
    assert_eq!(life.answer(by_hand), Some(&Outcome::Done { active: Generation(1) }));
    let again = life.rollback();
    assert_eq!(life.answer(again), Some(&Outcome::Denied(Deny::NoProbation)));
}

#[test]
fn a_rollback_is_denied_before_the_switch_and_after_commit() {
    let denied = Outcome::Denied(Deny::NoProbation);
    let mut life = Life::serving(settings());
    life.upgrade();
    let early = life.rollback();
    assert_eq!(life.answer(early), Some(&denied));
    life.adopt(2);
    life.says(2, FromChild::Ready);
    let switching = life.rollback();
    assert_eq!(life.answer(switching), Some(&denied));
    life.steered();
    life.pass(secs(2));
    let late = life.rollback();
    assert_eq!(life.answer(late), Some(&denied));
    assert_eq!(life.state(1), Some(StateView::Draining));
}

#[test]
fn the_folded_upgrade_begins_after_a_rollback() {
    let (mut life, _) = Life::on_probation(settings());
    let next = life.upgrade();
    life.rollback();
    assert!(life.orders().contains(&"spawn 3".to_owned()));
    life.bring_up(3);
    life.exits(2, ExitStatus::Code(0));
    life.pass(secs(2));
    assert_eq!(life.answer(next), Some(&Outcome::Done { active: Generation(3) }));
}

#[test]
fn a_steer_back_that_fails_is_tried_each_second() {
    let (mut life, _) = Life::on_probation(settings());
    life.crashes(2);
    life.feed(Event::SteerFailed { active: Generation(1), error: "no memory".to_owned() });
    assert!(life.warned("trying again"));
    life.pass(secs(1));
    assert_eq!(life.orders(), ["steer 1 of 1"]);
    life.steered();
    life.pass(secs(100));
    assert_eq!(life.orders(), [""; 0]);
}

#[test]
fn a_standby_that_dies_leaves_a_probation_that_cannot_be_rolled_back() {
    let (mut life, waiter) = Life::on_probation(settings());
    life.crashes(1);
    assert_eq!(life.orders(), ["steer 2 of 2", "retire 1", "gro on", "tell 2 gro on", "tell 2 alone"]);
    assert_eq!(life.snapshot().upgrade.unwrap().stage, StageView::Probation);
    let by_hand = life.rollback();
    assert_eq!(life.answer(by_hand), Some(&Outcome::Denied(Deny::NoProbation)));
    life.pass(secs(2));
    assert_eq!(life.answer(waiter), Some(&Outcome::Done { active: Generation(2) }));
}

#[test]
fn without_a_standby_an_unhealthy_new_one_fails_the_upgrade_and_is_replaced() {
    let (mut life, waiter) = Life::on_probation(settings());
    life.crashes(1);
    life.says(2, FromChild::Unhealthy { reason: "ill".to_owned() });
    assert!(matches!(life.answer(waiter), Some(Outcome::Failed { .. })));
    assert_eq!(life.orders(), ["answer 1", "spawn 3"]);
    assert_eq!(life.state(2), Some(StateView::Active));
}

#[test]
fn without_a_standby_a_crash_in_probation_is_an_active_crash() {
    let (mut life, waiter) = Life::on_probation(settings());
    life.crashes(1);
    life.crashes(2);
    assert!(matches!(life.answer(waiter), Some(Outcome::Failed { generation: Generation(2), .. })));
    assert_eq!(life.orders(), ["answer 1", "spawn 3"]);
}

#[test]
fn probes_begin_when_the_standby_has_stopped_accepting_or_after_a_second() {
    with_probes();
    let (mut life, _) = Life::on_probation(Settings { health: true, ..settings() });
    life.pass(ms(999));
    assert!(life.orders().is_empty());
    life.pass(ms(1));
    assert_eq!(life.orders(), ["probe 2"]);
    let (mut life, _) = Life::on_probation(Settings { health: true, ..settings() });
    life.crashes(1);
    assert!(life.orders().contains(&"probe 2".to_owned()));
}

#[test]
fn three_probe_failures_in_a_row_roll_back() {
    let (mut life, waiter) = with_probes();
    for result in [Err("503"), Err("503"), Ok(()), Err("503"), Err("503")] {
        life.feed(probed(2, result));
        assert!(life.orders().is_empty());
    }
    life.feed(probed(2, Err("no answer")));
    assert_eq!(life.orders(), ["stop probe", "steer 1 of 1 2", "tell 1 activate", "term 2", "answer 1"]);
    assert_eq!(rolled_back(&life, waiter), "health probe: no answer");
    life.feed(probed(2, Err("late")));
    assert!(life.out.is_empty());
}

#[test]
fn a_commit_needs_a_last_probe_that_succeeded() {
    let (mut life, waiter) = with_probes();
    life.feed(probed(2, Ok(())));
    life.feed(probed(2, Err("503")));
    life.pass(secs(2));
    assert!(life.orders().is_empty());
    life.feed(probed(1, Ok(())));
    assert!(life.orders().is_empty());
    life.feed(probed(2, Ok(())));
    assert_eq!(life.orders(), ["stop probe", "tell 1 drain 600000", "answer 1"]);
    assert_eq!(life.answer(waiter), Some(&Outcome::Done { active: Generation(2) }));
}

#[test]
fn a_healthy_probation_commits_at_its_end() {
    let (mut life, _) = with_probes();
    life.feed(probed(2, Ok(())));
    life.pass(secs(2));
    assert_eq!(life.orders(), ["stop probe", "tell 1 drain 600000", "answer 1"]);
}

#[test]
fn probes_without_any_verdict_are_a_rollback_in_the_end() {
    let (mut life, waiter) = with_probes();
    life.pass(ms(6_999));
    assert!(life.orders().is_empty());
    life.pass(ms(1));
    assert_eq!(rolled_back(&life, waiter), "no health probe succeeded at the end");
}

#[test]
fn without_a_standby_failed_probes_end_the_upgrade_and_begin_one_more() {
    let (mut life, waiter) = with_probes();
    life.crashes(1);
    for _ in 0..3 {
        life.feed(probed(2, Err("503")));
    }
    assert!(matches!(life.answer(waiter), Some(Outcome::Failed { .. })));
    assert_eq!(life.orders(), ["stop probe", "answer 1", "spawn 3"]);
}
