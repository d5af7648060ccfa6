//! The watchdog over generations: one that used to say its counters and is silent is not well.

use crate::life::{Life, secs, settings};
use protocol::message::{FromChild, Stats};
use supervisor::core::snapshot::StateView;
use supervisor::core::{Outcome, STATS_TIMEOUT};

fn says_its_counters(life: &mut Life, generation: u32) {
    life.says(generation, FromChild::Stats(Stats::default()));
}

#[test]
fn one_that_never_says_its_counters_need_not_say_them() {
    let mut life = Life::serving(settings());
    life.acknowledge(1);
    for _ in 0..100 {
        life.pass(secs(60));
        assert!(life.orders().is_empty(), "{:?}", life.orders());
    }
}

#[test]
fn an_active_one_that_falls_silent_is_replaced_once_and_not_ended() {
    let mut life = Life::serving(settings());
    life.acknowledge(1);
    says_its_counters(&mut life, 1);
    life.pass(STATS_TIMEOUT - secs(1));
    assert!(life.orders().is_empty());
    says_its_counters(&mut life, 1);
    life.pass(STATS_TIMEOUT - secs(1));
    assert!(life.orders().is_empty(), "each word counts");
    life.pass(secs(1));
    assert_eq!(life.orders(), ["spawn 2"]);
    assert_eq!(life.state(1), Some(StateView::Active));
}

#[test]
fn one_that_falls_silent_in_its_probation_is_rolled_back() {
    let mut life = Life::serving(supervisor::core::Settings { probation: secs(60), ..settings() });
    let waiter = life.upgrade();
    life.bring_up(2);
    life.acknowledge(1);
    life.acknowledge(2);
    says_its_counters(&mut life, 2);
    life.pass(STATS_TIMEOUT);
    let Some(Outcome::RolledBack { reason, .. }) = life.answer(waiter) else { panic!("{:?}", life.answer(waiter)) };
    assert_eq!(reason, "unhealthy: no stats for 10 s");
    assert_eq!(life.state(1), Some(StateView::Active));
}
