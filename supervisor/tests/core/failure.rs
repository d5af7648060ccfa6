//! How an upgrade, or the first generation, fails before it is active.

use crate::life::{Life, done, failed_with, hello, ms, secs, settings};
use protocol::exit;
use protocol::message::{FromChild, Generation, Hello, VersionRange};
use supervisor::core::snapshot::StateView;
use supervisor::core::{Event, ExitStatus, Settings, SpawnError};

#[test]
fn three_failing_upgrades_do_not_hinder_a_good_one() {
    let mut life = Life::serving(Settings { max_generations: 2, ..settings() });
    for generation in 2..5 {
        let waiter = life.upgrade();
        life.adopt(generation);
        life.crashes(generation);
        assert_eq!(failed_with(&life, waiter), "was ended by signal 11 before it was ready");
        assert_eq!(life.state(1), Some(StateView::Active));
    }
    let waiter = life.upgrade();
    life.bring_up(5);
    life.pass(secs(2));
    assert_eq!(life.answer(waiter), done(5).as_ref());
}

#[test]
fn a_failure_after_adopt_tells_the_old_one_nothing_but_that_it_is_alone() {
    let mut life = Life::serving(settings());
    life.upgrade();
    life.adopt(2);
    life.crashes(2);
    assert_eq!(life.orders(), ["answer 1", "retire 2", "gro on", "tell 1 gro on", "tell 1 alone"]);
}

#[test]
fn a_failure_before_adopt_is_not_noticed_at_all() {
    let mut life = Life::serving(settings());
    life.upgrade();
    life.spawned(2);
    life.crashes(2);
    assert_eq!(life.orders(), ["answer 1", "retire 2"]);
}

#[test]
fn a_program_that_cannot_be_executed_fails_the_upgrade() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.spawn_fails(2);
    assert_eq!(failed_with(&life, waiter), "not found");
    assert_eq!(life.orders(), ["answer 1", "retire 2"]);
}

#[test]
fn one_that_says_failed_has_the_grace_to_end_by_itself() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Failed { error: "no certificate".to_owned() });
    assert_eq!(failed_with(&life, waiter), "no certificate");
    assert_eq!(life.orders(), ["answer 1"]);
    life.pass(secs(2));
    assert_eq!(life.orders(), ["kill 2"]);
    assert_eq!(life.state(2), Some(StateView::Ending));
    life.exits(2, ExitStatus::Signal(9));
    assert_eq!(life.state(2), None);
}

#[test]
fn one_that_hangs_is_killed_at_the_ready_timeout() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.adopt(2);
    life.pass(ms(29_999));
    assert!(life.orders().is_empty());
    life.pass(ms(1));
    assert_eq!(life.orders(), ["kill 2", "answer 1"]);
    assert_eq!(failed_with(&life, waiter), "it was not ready in time; --ready-timeout allows more");
}

#[test]
fn one_that_asks_for_more_time_gets_it_within_the_limits() {
    let mut life = Life::serving(settings());
    life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Starting { more_ms: 60_000 });
    life.pass(secs(59));
    assert!(life.orders().is_empty());
    // Never less than it had, and never more than ten minutes at once.
    life.says(2, FromChild::Starting { more_ms: 0 });
    assert_eq!(life.snapshot().upgrade.unwrap().left, Some(secs(1)));
    life.says(2, FromChild::Starting { more_ms: u64::MAX });
    assert_eq!(life.snapshot().upgrade.unwrap().left, Some(secs(600)));
    for _ in 0..10 {
        life.pass(secs(500));
        life.says(2, FromChild::Starting { more_ms: 600_000 });
    }
    assert_ne!(life.state(2), Some(StateView::Starting), "an hour is the end of patience");
}

#[test]
fn one_that_speaks_no_common_version_is_refused() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.spawned(2);
    let protocol = VersionRange { min: 7, max: 9 };
    life.says(2, FromChild::Hello(Hello { protocol, ..hello() }));
    assert_eq!(life.orders(), ["tell 2 refused", "answer 1"]);
    assert!(failed_with(&life, waiter).contains("speaks the child protocol 7 to 9"));
}

#[test]
fn an_address_that_cannot_be_bound_is_refused() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.spawned(2);
    life.says(2, FromChild::Hello(hello()));
    life.feed(Event::AdoptFailed {
        generation: Generation(2),
        error: "[::]:443 is in use".to_owned(),
        status: exit::IN_USE,
    });
    assert_eq!(life.orders(), ["tell 2 refused", "answer 1"]);
    assert_eq!(failed_with(&life, waiter), "[::]:443 is in use");
}

#[test]
fn messages_out_of_turn_fail_an_upgrade_before_ready() {
    for message in [FromChild::Ready, FromChild::Unhealthy { reason: "ill".to_owned() }] {
        let mut life = Life::serving(settings());
        let waiter = life.upgrade();
        life.spawned(2);
        life.says(2, message);
        assert_eq!(life.orders(), ["term 2", "answer 1"]);
        failed_with(&life, waiter);
    }
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Hello(hello()));
    assert_eq!(failed_with(&life, waiter), "said hello out of turn");
}

#[test]
fn garbage_before_ready_fails_and_later_is_logged_once() {
    let garbage = |generation| Event::Garbage { generation: Generation(generation), error: "not JSON".to_owned() };
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.spawned(2);
    life.feed(garbage(2));
    assert_eq!(life.orders(), ["term 2", "answer 1"]);
    assert!(failed_with(&life, waiter).contains("not JSON"));
    life.feed(garbage(1));
    assert!(life.warned("not JSON"));
    life.feed(garbage(1));
    assert!(life.out.is_empty());
}

#[test]
fn a_lost_channel_before_ready_fails_unless_the_exit_says_more() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.adopt(2);
    life.loses_channel(2);
    life.pass(ms(500));
    life.exits(2, ExitStatus::Code(4));
    assert_eq!(failed_with(&life, waiter), "exited with status 4 before it was ready");

    let waiter = life.upgrade();
    life.adopt(3);
    life.loses_channel(3);
    life.pass(secs(1));
    assert_eq!(life.orders(), ["term 3", "answer 2"]);
    assert_eq!(failed_with(&life, waiter), "closed");
}

#[test]
fn a_switch_that_fails_leaves_the_old_one_active() {
    let mut life = Life::serving(settings());
    let waiter = life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Ready);
    life.feed(Event::SteerFailed { active: Generation(2), error: "no memory".to_owned() });
    assert_eq!(life.orders(), ["term 2", "steer 1 of 1 2", "answer 1"]);
    assert_eq!(failed_with(&life, waiter), "can't steer to it: no memory");
    assert_eq!(life.state(1), Some(StateView::Active));
}

#[test]
fn one_that_dies_before_the_switch_is_confirmed_is_steered_away_from() {
    let mut life = Life::serving(settings());
    life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Ready);
    life.crashes(2);
    assert_eq!(life.orders()[..3], ["steer 1 of 1", "answer 1", "retire 2"]);
    life.steered();
    assert_eq!(life.state(1), Some(StateView::Active));
}

#[test]
fn the_check_command_comes_before_the_spawn() {
    let mut life = Life::serving(Settings { check: true, ..settings() });
    let waiter = life.upgrade();
    assert_eq!(life.orders(), ["check 2"]);
    life.feed(Event::Checked { generation: Generation(2), result: Err("bad config".to_owned()) });
    assert_eq!(life.orders(), ["answer 1"]);
    assert_eq!(failed_with(&life, waiter), "check command: bad config");
    life.upgrade();
    life.feed(Event::Checked { generation: Generation(3), result: Ok(()) });
    assert_eq!(life.orders(), ["spawn 3"]);
}

#[test]
fn a_check_command_that_hangs_is_ended_at_the_ready_timeout() {
    let mut life = Life::serving(Settings { check: true, ..settings() });
    let waiter = life.upgrade();
    life.pass(secs(30));
    assert_eq!(life.orders(), ["stop check 2", "answer 1"]);
    assert_eq!(failed_with(&life, waiter), "check command: no verdict in time");
    life.feed(Event::Checked { generation: Generation(2), result: Ok(()) });
    assert!(life.out.is_empty());
}

#[test]
fn a_first_generation_that_fails_ends_the_service_with_its_own_status() {
    for (status, expected) in [
        (ExitStatus::Code(3), 3),
        (ExitStatus::Signal(11), 139),
        (ExitStatus::Code(0), exit::NOT_READY),
        (ExitStatus::Unknown, exit::FAILURE),
    ] {
        let mut life = Life::new(settings());
        life.feed(Event::Start);
        let waiter = life.upgrade();
        life.adopt(1);
        life.exits(1, status);
        assert_eq!(life.orders(), ["answer 1".to_owned(), "retire 1".to_owned(), format!("exit {expected}")]);
        failed_with(&life, waiter);
    }
}

#[test]
fn a_first_generation_that_says_failed_still_decides_the_status() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.adopt(1);
    life.says(1, FromChild::Failed { error: "no certificate".to_owned() });
    assert_eq!(life.exit_status(), None);
    assert!(life.warned("no certificate"));
    life.exits(1, ExitStatus::Code(78));
    assert_eq!(life.exit_status(), Some(78));
}

#[test]
fn a_first_generation_that_can_not_have_its_sockets_ends_the_service_with_the_status_of_that() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.spawned(1);
    life.says(1, FromChild::Hello(hello()));
    life.feed(Event::AdoptFailed { generation: Generation(1), error: "in use".to_owned(), status: exit::IN_USE });
    life.exits(1, ExitStatus::Signal(15));
    assert_eq!(life.exit_status(), Some(exit::IN_USE));
}

#[test]
fn a_first_generation_that_has_to_be_killed_was_not_ready() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.adopt(1);
    life.pass(secs(30));
    assert_eq!(life.orders(), ["kill 1"]);
    life.exits(1, ExitStatus::Signal(9));
    assert_eq!(life.exit_status(), Some(exit::NOT_READY));

    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.adopt(1);
    life.says(1, FromChild::Failed { error: "no".to_owned() });
    life.pass(secs(2));
    life.exits(1, ExitStatus::Signal(9));
    assert_eq!(life.exit_status(), Some(exit::NOT_READY));
}

#[test]
fn a_first_program_that_cannot_be_started_has_the_status_of_shells() {
    for (error, expected) in [
        (SpawnError::NotFound("x".to_owned()), 127),
        (SpawnError::NotExecutable("x".to_owned()), 126),
        (SpawnError::Other("x".to_owned()), 1),
    ] {
        let mut life = Life::new(settings());
        life.feed(Event::Start);
        life.feed(Event::SpawnFailed { generation: Generation(1), error });
        assert_eq!(life.exit_status(), Some(expected));
    }
}
