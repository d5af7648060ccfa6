//! The arithmetic of a drain over all its inputs.

use super::{ABOUT, AUTO_RATE, Clamped, LONGEST, Plan, Purpose, STEP, Slot, Turn};
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        (0..10_000_u64).prop_map(Duration::from_micros),
        (0..100_000_u64).prop_map(Duration::from_millis),
        any::<u64>().prop_map(Duration::from_nanos),
        Just(Duration::MAX),
    ]
}

fn subscribers(count: usize) -> Vec<Turn> {
    vec![Turn::Subscriber; count]
}

proptest! {
    /// No session outlives the deadline, none is told before the start, and each has the same time to leave.
    #[test]
    fn every_slot_lies_within_the_drain(
        timeout in durations(), spread in proptest::option::of(durations()), sessions in 0..5_000_usize, rank in 0..6_000_usize,
    ) {
        let start = Instant::now();
        let (plan, clamped) = Plan::new(start, timeout, spread, &subscribers(sessions), false, false);
        let slot = plan.slot(rank, Turn::Subscriber);
        prop_assert!(start <= slot.tell && slot.tell <= start + plan.spread());
        prop_assert!(slot.tell <= slot.close && slot.close <= plan.deadline());
        prop_assert_eq!(slot.close - slot.tell, plan.deadline() - start - plan.spread());
        prop_assert!(plan.deadline() - start == timeout.min(LONGEST));
        if let Some(Clamped { asked, used }) = clamped {
            prop_assert!(asked > used);
            prop_assert_eq!(used, plan.spread());
        } else if let Some(spread) = spread {
            prop_assert_eq!(spread, plan.spread());
        }
    }

    /// GOAWAYs are steady: any two neighbours are the same time apart, to the nanosecond.
    #[test]
    fn the_rate_is_steady(spread_ms in 0..60_000_u64, sessions in 2..3_000_usize, rank in 0..3_000_usize) {
        let rank = rank % (sessions - 1);
        let spread = Duration::from_millis(spread_ms);
        let (plan, _) = Plan::new(Instant::now(), Duration::from_secs(600), Some(spread), &subscribers(sessions), false, false);
        let gap = plan.slot(rank + 1, Turn::Subscriber).tell - plan.slot(rank, Turn::Subscriber).tell;
        let mean = spread / u32::try_from(sessions).expect("at most 3 000");
        prop_assert!(gap >= mean && gap <= mean + Duration::from_nanos(2));
    }

    /// A second drain never gives a session more time, and the order of two drains does not matter.
    #[test]
    fn a_second_drain_only_brings_things_forward(a in 0..9_000_u64, b in 0..9_000_u64, c in 0..9_000_u64, d in 0..9_000_u64) {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let first = Slot { tell: at(a), close: at(a + b) };
        let second = Slot { tell: at(c), close: at(c + d) };
        let both = first.sooner(second);
        prop_assert_eq!(both, second.sooner(first));
        prop_assert!(both.tell <= first.tell && both.close <= first.close);
        prop_assert!(both.tell <= both.close);
        prop_assert_eq!(both.sooner(first), both);
    }
}

/// A herd of 2 000 reconnecting clients arrives at 1 000 a second, unless the operator says otherwise.
#[test]
fn without_a_spread_the_rate_is_1000_a_second() {
    let start = Instant::now();
    let (plan, clamped) = Plan::new(start, Duration::from_secs(10), None, &subscribers(2_000), false, false);
    assert_eq!(clamped, None);
    assert_eq!(plan.spread(), Duration::from_secs(2));
    let told_in_first_second =
        (0..2_000).filter(|rank| plan.slot(*rank, Turn::Subscriber).tell < start + SECOND).count();
    assert_eq!(told_in_first_second, AUTO_RATE as usize);
    assert_eq!(plan.slot(1_999, Turn::Subscriber).close, start + Duration::from_secs(10) - Duration::from_millis(1));
}

/// The last session told must still have a fifth of the timeout to leave.
#[test]
fn a_spread_is_clamped_to_80_percent_of_the_timeout() {
    let start = Instant::now();
    for (timeout, spread, sessions, used) in [
        (10, Some(9_000), 1, 8_000),
        (10, Some(8_000), 1, 8_000),
        (10, Some(7_999), 1, 7_999),
        (1, None, 5_000, 800),
        (0, Some(1), 3, 0),
    ] {
        let (plan, clamped) =
            Plan::new(start, SECOND * timeout, spread.map(Duration::from_millis), &subscribers(sessions), false, false);
        let used = Duration::from_millis(used);
        assert_eq!(plan.spread(), used, "{timeout} s, {spread:?}");
        let asked = spread.map_or_else(|| Duration::from_millis(sessions as u64), Duration::from_millis);
        assert_eq!(clamped, (asked > used).then_some(Clamped { asked, used }), "{timeout} s, {spread:?}");
    }
}

/// `--drain-timeout 0`: every session is closed at the start, and one that is closed is not told first.
#[test]
fn a_zero_timeout_closes_at_once() {
    let start = Instant::now();
    let (plan, _) = Plan::new(start, Duration::ZERO, None, &subscribers(100), false, false);
    assert!((0..100).all(|rank| plan.slot(rank, Turn::Subscriber) == Slot::at_once(start)));
    assert_eq!(plan.late(start + SECOND), Slot::at_once(start + SECOND));
}

/// One that arrives late gets what is left, not the whole timeout again.
#[test]
fn a_late_session_is_told_at_once_with_what_is_left() {
    let start = Instant::now();
    let (plan, _) = Plan::new(start, SECOND * 10, None, &subscribers(4), false, false);
    let now = start + SECOND * 7;
    assert_eq!(plan.late(now), Slot { tell: now, close: start + SECOND * 10 });
}

/// Whoever may be a relay and came about the switch may be the new generation of a neighbour.
#[test]
fn the_turn_of_a_session_is_what_it_is_for_and_when_it_came() {
    let switched = Instant::now() + SECOND * 60;
    for (purpose, came, turn) in [
        (Purpose::Both, switched - ABOUT - Duration::from_nanos(1), Turn::Neighbour),
        (Purpose::Both, switched - ABOUT, Turn::Astray),
        (Purpose::Both, switched + SECOND, Turn::Astray),
        (Purpose::Publish, switched, Turn::Publisher),
        (Purpose::Subscribe, switched, Turn::Subscriber),
    ] {
        assert_eq!(Turn::of(purpose, came, Some(switched)), turn, "{purpose:?}");
    }
    assert_eq!(Turn::of(Purpose::Both, switched, None), Turn::Neighbour);
}

/// A turn that nobody has takes no time; a stop, after which nobody serves, has no steps at all.
#[test]
fn after_a_switch_a_step_lies_between_the_turns_that_there_are() {
    use Turn::{Astray, Dialed, Neighbour, Publisher, Subscriber};
    let start = Instant::now();
    let all = [Astray, Publisher, Subscriber, Neighbour];
    for (turns, switched, dialed, timeout, expected) in [
        (&all[..], true, true, 60, [0, 1_000, 2_000, 3_000, 4_000]),
        (&all, true, false, 60, [0, 1_000, 2_000, 3_000, 4_000]),
        (&[Subscriber], true, false, 60, [0, 0, 0, 1_000, 1_000]),
        (&[Publisher, Subscriber], true, false, 60, [0, 0, 1_000, 2_000, 2_000]),
        (&[Publisher, Neighbour], true, false, 60, [0, 0, 1_000, 1_000, 2_000]),
        (&[], true, true, 60, [0; 5]),
        // A fiftieth of the timeout at most.
        (&all, true, true, 5, [0, 100, 200, 300, 400]),
        (&all, true, true, 0, [0; 5]),
        (&all, false, true, 60, [0; 5]),
    ] {
        let (plan, _) = Plan::new(start, SECOND * timeout, Some(Duration::ZERO), turns, switched, dialed);
        for (turn, later) in [Astray, Publisher, Subscriber, Neighbour, Dialed].into_iter().zip(expected) {
            let slot = plan.slot(0, turn);
            assert_eq!(slot.tell - start, Duration::from_millis(later), "{turn:?} of {turns:?}");
            assert_eq!(slot.close, plan.deadline(), "{turn:?} of {turns:?}");
        }
        assert_eq!(plan.dialed() - start, Duration::from_millis(expected[Dialed as usize]), "{turns:?}");
    }
}

/// The steadiness of the GOAWAYs is that of each turn.
#[test]
fn publishers_go_before_subscribers_and_each_at_the_same_rate() {
    let start = Instant::now();
    let turns = [vec![Turn::Publisher; 500], subscribers(1_500)].concat();
    let (plan, _) = Plan::new(start, SECOND * 600, None, &turns, true, false);
    for (rank, turn) in turns.iter().enumerate() {
        let later = if *turn == Turn::Publisher { Duration::ZERO } else { STEP };
        assert_eq!(plan.slot(rank, *turn).tell - start, Duration::from_millis(rank as u64) + later);
    }
}
