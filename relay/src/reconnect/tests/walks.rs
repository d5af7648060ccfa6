//! Random walks: worlds that change at every step, with all settings.

use super::world::{Does, Life, live};
use crate::reconnect::{Backoff, Luck, Restart, Settings};
use proptest::prelude::*;
use std::time::Duration;

fn does() -> impl Strategy<Value = Does> {
    let life = prop_oneof![Just(Life::Short), Just(Life::Healthy), Just(Life::Long)];
    prop_oneof![
        Just(Does::Serve),
        Just(Does::Fail),
        Just(Does::Refuse),
        life.clone().prop_map(Does::Restart),
        life.clone().prop_map(Does::Mislead),
        life.clone().prop_map(Does::Close),
        (0..4_usize, life).prop_map(|(to, life)| Does::Redirect(to, life)),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let restart = prop_oneof![Just(Restart::Redial), Just(Restart::Wait), Just(Restart::Handoff)];
    let millis = |range: std::ops::Range<u64>| range.prop_map(Duration::from_millis);
    let backoff = (millis(10..20_000), 0..5_u32, millis(0..30_000), proptest::option::of(millis(0..60_000)));
    (restart, backoff, millis(0..30_000)).prop_map(|(restart, (initial, multiplier, max, timeout), handover)| {
        Settings { restart, once: false, backoff: Backoff { initial, multiplier, max, timeout }, handover }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// What [`live`] checks holds whatever relays do, in whatever order.
    #[test]
    fn any_run_of_events_keeps_the_invariants(
        settings in settings(),
        script in proptest::collection::vec(does(), 1..40),
        luck in 0.0..=1.0_f64,
    ) {
        let mut step = 0;
        let world = |_, _| {
            step += 1;
            script[step % script.len()]
        };
        let history = live(world, settings, Luck::new(luck).expect("in range"), Duration::from_secs(300));
        prop_assert!(history.ended.is_none());
    }
}
