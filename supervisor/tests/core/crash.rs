//! What happens when the active generation ends, or is not well.

use crate::life::{Life, hello, ms, secs, settings};
use protocol::message::{FromChild, Generation};
use supervisor::core::snapshot::{PhaseView, StateView};
use supervisor::core::{Action, Deny, Event, ExitStatus, Outcome, Settings};

fn failed(life: &Life) -> (u32, Option<std::time::Duration>, Option<Generation>) {
    match life.snapshot().phase {
        PhaseView::Failed { attempts, next, stand_in } => (attempts, next, stand_in),
        other => panic!("not failed: {other:?}"),
    }
}

/// Lets the respawn that is running fail, and goes to the next one. Returns its generation.
pub(crate) fn fail_respawn(life: &mut Life, generation: u32) -> u32 {
    life.spawned(generation);
    life.crashes(generation);
    life.steered();
    while !life.orders().contains(&format!("spawn {}", generation + 1)) {
        life.pass_to_deadline();
    }
    generation + 1
}

/// Generations 1 and 2 drain, 3 crashed, and three respawns failed; the fourth, generation 7, is starting.
fn at_the_last_resort() -> Life {
    let mut life = Life::with_generations(settings(), 3);
    life.crashes(3);
    let mut next = 4;
    while next < 7 {
        next = fail_respawn(&mut life, next);
    }
    life
}

#[test]
fn a_successor_starts_at_once_and_takes_over_the_sockets() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    // Nothing is retired and no steering changes: the packets wait.
    assert_eq!(life.orders(), ["spawn 2"]);
    assert_eq!(failed(&life), (0, None, None));
    assert_eq!(life.snapshot().active, Some(Generation(1)));
    life.adopt(2);
    assert_eq!(life.orders(), ["adopt 2 gro on after 1"]);
    life.says(2, FromChild::Ready);
    assert_eq!(life.orders(), ["steer 2 of 2"]);
    life.steered();
    assert_eq!(life.orders(), ["steer 2 of 2", "tell 2 activate", "retire 1"]);
    assert_eq!(life.snapshot().upgrade, None, "a respawn has no probation");
}

#[test]
fn queues_are_emptied_when_the_outage_took_three_seconds() {
    for (outage, expected) in [(ms(2_999), "adopt 2 gro on after 1"), (secs(3), "adopt 2 gro on after 1 flush")] {
        let mut life = Life::serving(settings());
        life.crashes(1);
        life.spawned(2);
        life.pass(outage);
        life.says(2, FromChild::Hello(hello()));
        assert_eq!(life.orders(), [expected]);
    }
}

#[test]
fn respawns_go_on_for_ever_with_growing_delays() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    let mut delays = Vec::new();
    for generation in 2..40 {
        life.spawned(generation);
        life.crashes(generation);
        let (attempts, next, _) = failed(&life);
        assert_eq!(attempts, generation - 1);
        delays.push(next.unwrap());
        life.pass_to_deadline();
        assert_eq!(life.orders(), [format!("spawn {}", generation + 1)]);
    }
    assert!(delays[0] >= ms(50) && delays[0] <= ms(100));
    assert!(delays[1] >= ms(100) && delays[1] <= ms(200));
    assert!(delays[20..].iter().all(|delay| *delay >= secs(15) && *delay <= secs(30)));
}

#[test]
fn one_that_crashes_again_soon_is_not_started_at_once_again() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    life.bring_up(2);
    life.pass(secs(5));
    life.crashes(2);
    assert!(failed(&life).1.is_some_and(|delay| delay >= ms(50)));
    life.pass(ms(100));
    life.bring_up(3);
    life.pass(secs(60));
    life.crashes(3);
    assert_eq!(life.orders(), ["spawn 4"]);
}

/// In a storm of ten minutes each crash counted as one more of the same, whatever had been installed in between: the last
/// one was an outage of 20 s.
#[test]
fn a_crash_after_an_upgrade_that_passed_its_probation_is_a_first_one() {
    for (probation, expected) in [(secs(10), true), (secs(0), false)] {
        let mut life = Life::serving(Settings { probation, ..settings() });
        life.crashes(1);
        life.bring_up(2);
        life.crashes(2);
        life.pass(ms(100));
        life.bring_up(3);
        life.upgrade();
        life.bring_up(4);
        life.pass(probation);
        life.exits(3, ExitStatus::Code(0));
        life.crashes(4);
        assert_eq!(life.orders().contains(&"spawn 5".to_owned()), expected, "probation {probation:?}");
    }
}

#[test]
fn the_successor_of_a_successor_takes_over_the_same_sockets() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    life.adopt(2);
    life.crashes(2);
    assert_eq!(life.orders(), ["retire 2"]);
    life.pass(ms(100));
    life.adopt(3);
    assert_eq!(life.orders(), ["adopt 3 gro on after 1"]);
}

#[test]
fn a_respawn_that_hangs_with_the_sockets_is_gone_before_the_next_one() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    life.adopt(2);
    life.pass(secs(34));
    assert_eq!(life.orders(), ["kill 2"]);
    life.exits(2, ExitStatus::Signal(9));
    assert_eq!(life.orders(), ["retire 2", "spawn 3"]);
}

#[test]
fn a_respawn_that_hangs_in_the_kernel_is_not_waited_for() {
    let mut life = Life::serving(Settings { max_generations: 2, ..settings() });
    life.crashes(1);
    life.adopt(2);
    life.pass(secs(35));
    assert_eq!(life.orders(), ["kill 2", "spawn 3"]);
    assert!(life.warned("does not end after SIGKILL"));
    life.bring_up(3);
    life.crashes(3);
    life.pass(secs(1));
    life.bring_up(4);
    life.exits(2, ExitStatus::Signal(9));
    assert!(life.orders().contains(&"retire 2".to_owned()));
    assert_eq!(life.state(4), Some(StateView::Active));
}

#[test]
fn an_upgrade_in_flight_becomes_the_successor() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.spawned(2);
    life.crashes(1);
    assert!(life.orders().is_empty());
    life.says(2, FromChild::Hello(hello()));
    assert_eq!(life.orders(), ["adopt 2 gro on after 1"]);
    life.feed(Event::Adopted { generation: Generation(2) });
    life.says(2, FromChild::Ready);
    life.steered();
    assert_eq!(life.answer(waiter), Some(&Outcome::Done { active: Generation(2) }));
}

#[test]
fn a_crash_between_the_order_to_switch_and_its_confirmation_ends_in_the_new_one() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Ready);
    life.crashes(1);
    life.steered();
    assert_eq!(life.answer(waiter), Some(&Outcome::Done { active: Generation(2) }));
    assert!(life.orders().ends_with(&["gro on".to_owned(), "tell 2 gro on".to_owned(), "tell 2 alone".to_owned()]));
}

#[test]
fn an_upgrade_that_was_only_checked_is_spawned_at_once() {
    let mut life = Life::serving(Settings { check: true, ..settings() });
    let waiter = life.upgrade();
    life.crashes(1);
    assert_eq!(life.orders(), ["stop check 2", "spawn 3"]);
    life.bring_up(3);
    assert_eq!(life.answer(waiter), Some(&Outcome::Done { active: Generation(3) }));
}

#[test]
fn an_upgrade_by_hand_recovers_at_once() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    for generation in 2..10 {
        fail_respawn(&mut life, generation);
    }
    life.spawned(10);
    life.crashes(10);
    assert!(failed(&life).1.is_some_and(|delay| delay > secs(1)));
    let waiter = life.upgrade();
    assert_eq!(life.orders(), ["spawn 11"]);
    let folded = life.upgrade();
    assert!(life.orders().is_empty());
    life.bring_up(11);
    assert_eq!(life.answer(waiter), Some(&Outcome::Done { active: Generation(11) }));
    assert_eq!(life.orders().last().unwrap(), "spawn 12");
    assert_eq!(life.answer(folded), None);
}

#[test]
fn an_upgrade_folded_into_a_respawn_makes_the_next_one_at_once() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    let waiter = life.upgrade();
    life.spawned(2);
    life.crashes(2);
    assert_eq!(life.orders(), ["retire 2", "spawn 3"]);
    life.spawned(3);
    life.crashes(3);
    assert!(matches!(life.answer(waiter), Some(Outcome::Failed { generation: Generation(3), .. })));
}

#[test]
fn a_draining_generation_stands_in_only_after_three_failed_respawns() {
    let mut life = Life::with_generations(settings(), 3);
    life.crashes(3);
    assert_eq!(life.orders(), ["spawn 4"]);
    fail_respawn(&mut life, 4);
    fail_respawn(&mut life, 5);
    assert_eq!(failed(&life).2, None);
    life.spawned(6);
    life.crashes(6);
    assert_eq!(life.orders(), ["tell 2 undrain", "steer 2 of 1 2", "retire 3", "retire 6"]);
    assert_eq!(failed(&life).2, Some(Generation(2)));
    assert_eq!(life.state(2), Some(StateView::Active));
}

#[test]
fn a_stand_in_drains_again_when_a_respawn_succeeds() {
    let mut life = at_the_last_resort();
    life.bring_up(7);
    assert_eq!(
        life.orders(),
        ["adopt 7 gro off", "gro off", "steer 7 of 1 2 7", "tell 7 activate", "tell 2 drain 600000"]
    );
    assert_eq!(life.snapshot().phase, PhaseView::Serving);
}

#[test]
fn a_stand_in_that_dies_is_followed_by_the_next_youngest_and_then_its_sockets_hold() {
    let mut life = at_the_last_resort();
    life.exits(2, ExitStatus::Code(0));
    assert_eq!(life.orders(), ["tell 1 undrain", "steer 1 of 1", "retire 2"]);
    life.steered();
    life.crashes(1);
    assert!(life.orders().is_empty());
    life.adopt(7);
    assert_eq!(life.orders(), ["gro on", "adopt 7 gro on after 1"]);
}

#[test]
fn one_that_drains_by_signal_cannot_stand_in() {
    let (mut life, _) = Life::on_probation(settings());
    life.pass(secs(4));
    assert!(life.orders().contains(&"term 1".to_owned()));
    life.crashes(2);
    for generation in 3..8 {
        fail_respawn(&mut life, generation);
    }
    assert_eq!(failed(&life).2, None);
}

#[test]
fn an_active_one_that_ends_with_0_ends_the_service() {
    let mut life = Life::with_generations(settings(), 3);
    life.exits(3, ExitStatus::Code(0));
    assert_eq!(life.orders(), ["tell 1 drain 10000", "tell 2 drain 10000", "retire 3"]);
    assert_eq!(life.snapshot().phase, PhaseView::Stopping);
    life.exits(1, ExitStatus::Code(0));
    life.exits(2, ExitStatus::Signal(9));
    assert_eq!(life.exit_status(), Some(0));
}

#[test]
fn an_active_one_that_ends_with_0_ends_an_upgrade_too() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.spawned(2);
    life.exits(1, ExitStatus::Code(0));
    assert_eq!(life.answer(waiter), Some(&Outcome::Denied(Deny::Stopping)));
    assert_eq!(life.orders(), ["answer 1", "term 2", "retire 1"]);
}

#[test]
fn an_unhealthy_active_one_is_replaced_once_and_serves_meanwhile() {
    let ill = || FromChild::Unhealthy { reason: "ill".to_owned() };
    let mut life = Life::serving(settings());
    life.says(1, ill());
    assert_eq!(life.orders(), ["spawn 2"]);
    assert_eq!(life.snapshot().generations[0].unhealthy.as_deref(), Some("unhealthy: ill"));
    life.says(1, ill());
    assert!(life.orders().is_empty());
    life.spawned(2);
    life.crashes(2);
    life.says(1, FromChild::Failed { error: "worse".to_owned() });
    assert!(life.orders().is_empty(), "one attempt per generation");
    assert!(life.warned("worse"));
    assert_eq!(life.state(1), Some(StateView::Active));
}

#[test]
fn standby_and_draining_ones_that_end_or_complain_change_nothing_for_the_others() {
    for status in [ExitStatus::Code(0), ExitStatus::Code(1), ExitStatus::Signal(9), ExitStatus::Unknown] {
        let mut life = Life::with_generations(settings(), 3);
        life.says(1, FromChild::Unhealthy { reason: "ill".to_owned() });
        assert!(life.orders().is_empty());
        life.exits(1, status);
        assert_eq!(life.orders(), ["steer 3 of 2 3", "retire 1"]);
    }
}

#[test]
fn used_up_numbers_begin_again_with_new_keys_when_nothing_lives() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    let mut generation = 1;
    while !life.out.contains(&Action::Rekey) {
        generation += 1;
        life.spawn_fails(generation);
        life.pass_to_deadline();
    }
    assert_eq!(generation, protocol::cid::MAX_GENERATION);
    assert_eq!(life.orders(), ["retire 1", "rekey", "spawn 1"]);
    life.bring_up(1);
    assert_eq!(life.snapshot().phase, PhaseView::Serving);
}

#[test]
fn used_up_numbers_deny_an_upgrade_and_fail_a_respawn_while_others_live() {
    let mut life = Life::with_generations(settings(), 2);
    for generation in 3..=protocol::cid::MAX_GENERATION {
        life.upgrade();
        life.spawn_fails(generation);
    }
    let waiter = life.upgrade();
    assert_eq!(life.answer(waiter), Some(&Outcome::Denied(Deny::OutOfGenerations)));
    life.crashes(2);
    assert!(life.warned("no respawn"));
    let waiter = life.upgrade();
    assert_eq!(life.answer(waiter), Some(&Outcome::Denied(Deny::OutOfGenerations)));
    life.pass(secs(1));
    assert_eq!(failed(&life).2, Some(Generation(1)), "the draining one stands in");
    life.crashes(1);
    life.pass(secs(31));
    assert!(life.orders().ends_with(&["retire 1".to_owned(), "rekey".to_owned(), "spawn 1".to_owned()]));
}
