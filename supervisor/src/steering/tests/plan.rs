//! What is no range and no plan.

use super::super::{MAX_RANGES, PlanError, RangeError};
use super::*;

#[test]
fn an_impossible_range_is_refused() {
    assert_eq!(Range::new(tag(1, 0), 0, 0), Err(RangeError::Empty));
    assert_eq!(Range::new(tag(1, 4_090), 7, 0), Err(RangeError::Members { first: 4_090, members: 7 }));
    assert_eq!(Range::new(tag(1, 0), 7, 4_090), Err(RangeError::Positions { first: 4_090, members: 7 }));
    assert!(Range::new(tag(1, 4_090), 6, 4_090).is_ok());
    assert!(Range::new(tag(1, 0), 4_096, 0).is_ok());
    assert!(Range::new(tag(1, 0), u16::MAX, u16::MAX).is_err());
}

#[test]
fn a_tag_is_found_in_its_range_only() {
    let range = range(5, 10, 3, 100);
    let found: Vec<_> = (8..15).map(|member| range.position_of(tag(5, member))).collect();
    assert_eq!(found, [None, None, Some(100), Some(101), Some(102), None, None]);
    assert_eq!(range.position_of(tag(6, 10)), None);
    assert_eq!(range.position_of(tag(4, 10)), None);
}

#[test]
fn a_range_beyond_the_group_is_refused() {
    let (one, two) = (range(1, 0, 4, 0), range(2, 4, 4, 4));
    assert_eq!(
        Plan::new(7, vec![one, two], one, None),
        Err(PlanError::OutsideGroup { generation: Generation(2), group: 7 })
    );
    assert_eq!(
        Plan::new(7, vec![one], two, None),
        Err(PlanError::OutsideGroup { generation: Generation(2), group: 7 })
    );
    assert!(Plan::new(8, vec![one, two], one, None).is_ok());
}

#[test]
fn two_live_ranges_can_not_share_a_member_or_a_position() {
    let refused = |one, other| {
        let error = Plan::new(100, vec![one, other], one, None).unwrap_err();
        assert!(matches!(error, PlanError::Overlap { .. }), "{error}");
    };
    refused(range(1, 0, 4, 0), range(2, 4, 4, 3));
    refused(range(1, 0, 4, 10), range(2, 4, 4, 7));
    refused(range(1, 0, 4, 0), range(1, 3, 4, 10));
    refused(range(1, 0, 4, 0), range(1, 0, 4, 0));
    // The same members under another generation are fine: they were issued again, elsewhere.
    assert!(Plan::new(100, vec![range(1, 0, 4, 0), range(2, 0, 4, 4)], range(2, 0, 4, 4), None).is_ok());
}

#[test]
fn the_active_range_of_a_live_generation_is_a_live_one() {
    let live = range(2, 0, 4, 0);
    assert_eq!(
        Plan::new(8, vec![live], range(2, 0, 3, 0), None),
        Err(PlanError::ActiveNotLive { generation: Generation(2) })
    );
    assert!(Plan::new(8, vec![live], range(1, 0, 4, 0), None).is_ok(), "a dead one may be active");
}

#[test]
fn a_canary_is_live_and_not_the_active_one() {
    let (one, two) = (range(1, 0, 4, 0), range(2, 4, 4, 4));
    let plan = |canary, permille| Plan::new(12, vec![one, two], one, Some((canary, permille)));
    assert_eq!(plan(one, 10), Err(PlanError::Canary { generation: Generation(1) }));
    assert_eq!(plan(range(3, 8, 4, 8), 10), Err(PlanError::Canary { generation: Generation(3) }));
    assert_eq!(plan(two, 1_001), Err(PlanError::Share { permille: 1_001 }));
    assert_eq!(plan(two, 1_000).unwrap().canary(), Some((two, 1_000)));
    assert_eq!(plan(two, 0).unwrap().canary(), None, "no share, no canary");
}

#[test]
fn too_many_ranges_are_refused() {
    let live: Vec<_> = (0..=u16::try_from(MAX_RANGES).unwrap()).map(|index| range(1, index, 1, index)).collect();
    assert_eq!(Plan::new(100, live.clone(), live[0], None), Err(PlanError::TooManyRanges { ranges: MAX_RANGES + 1 }));
    assert!(Plan::new(100, live[1..].to_vec(), live[1], None).is_ok());
}
