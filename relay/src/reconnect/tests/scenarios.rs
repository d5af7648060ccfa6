//! What a peer meets, one thing at a time.

use super::world::{DRAIN, Does, History, Life, live};
use super::{MS, SECOND, initial, settings};
use crate::reconnect::{Error, Failure, Luck, Report, Restart, Settings};
use std::time::Duration;

const LUCKS: [Luck; 2] = [Luck::SHORT, Luck::LONG];

/// The errors that sequences ended with, and when.
fn errors(history: &History) -> Vec<(Duration, Error)> {
    let error = |(at, report): &(Duration, Report)| match report {
        Report::Ended(error, _) => Some((*at, error.clone())),
        Report::Moving | Report::ServingOut | Report::Waiting(_) => None,
    };
    history.reports.iter().filter_map(error).collect()
}

fn places(history: &History) -> Vec<usize> {
    history.dials.iter().map(|(_, place)| *place).collect()
}

/// The test of the issue: 10 ms of initial backoff, and nothing but redirects.
#[test]
fn two_relays_that_redirect_to_each_other_get_six_dials_in_the_first_second() {
    for luck in LUCKS {
        let settings = initial(10 * MS);
        let history = live(|place, _| Does::Redirect(1 - place, Life::Short), settings, luck, 60 * SECOND);
        assert!(history.busiest_second() <= 6, "{history:?}");
        let (at, error) = errors(&history).remove(0);
        assert_eq!(error, Error::RedirectLoop(10 * SECOND));
        assert!((10 * SECOND..16 * SECOND).contains(&at), "{at:?}");
        assert!(error.to_string().starts_with("redirect loop"), "{error}");
        // A session serves until its relay closes it, after 15 s; then it is dark for as long as a dial takes.
        assert!(history.gaps.iter().all(|(from, to)| *to - *from == MS), "{history:?}");
        assert!(history.gaps[1].0 >= DRAIN, "{history:?}");
    }
}

#[test]
fn three_relays_in_a_circle_are_a_loop_too() {
    for (luck, life) in LUCKS.into_iter().flat_map(|luck| [(luck, Life::Short), (luck, Life::Healthy)]) {
        let history = live(|place, _| Does::Redirect((place + 1) % 3, life), initial(10 * MS), luck, 60 * SECOND);
        assert!(errors(&history).iter().any(|(_, error)| matches!(error, Error::RedirectLoop(_))), "{history:?}");
        assert!(history.busiest_second() <= 7, "{history:?}");
    }
}

/// A relay that leaves sends to the next one, which leaves in turn: nothing leads back, so nothing waits.
#[test]
fn a_rolling_restart_never_waits() {
    for (luck, life) in LUCKS.into_iter().flat_map(|luck| Life::ALL.map(|life| (luck, life))) {
        let rolling = |place, _| if place < 7 { Does::Redirect(place + 1, life) } else { Does::Serve };
        let history = live(rolling, settings(Restart::Handoff), luck, 200 * SECOND);
        assert_eq!(places(&history), (0..=7).collect::<Vec<_>>());
        assert_eq!((history.waits(), history.gaps.len()), (0, 1), "{history:?}");
    }
}

/// A restarts and sends to B; A comes back; B restarts and sends to A.
#[test]
fn there_and_back_waits_once() {
    for luck in LUCKS {
        let mut left = false;
        let world = |place, _| match place {
            0 if left => Does::Serve,
            0 => Does::Redirect(1, Life::Healthy),
            _ => {
                left = true;
                Does::Redirect(0, Life::Healthy)
            }
        };
        let history = live(world, initial(100 * MS), luck, 60 * SECOND);
        assert_eq!(places(&history), [0, 1, 0]);
        assert_eq!((history.waits(), history.gaps.len()), (1, 1), "{history:?}");
    }
}

/// The dial reached the process that is leaving: one more would as well.
#[test]
fn a_draining_node_that_is_reached_again_serves_until_it_closes() {
    let world = |_, at: Duration| match at {
        at if at < SECOND => Does::Restart(Life::Healthy),
        at if at < DRAIN => Does::Restart(Life::Short),
        _ => Does::Serve,
    };
    let history = live(world, settings(Restart::Handoff), Luck::LONG, 60 * SECOND);
    assert_eq!(history.dials.len(), 3, "{history:?}");
    assert!(history.dials[1].0 < Duration::from_millis(1_100), "the one redial is at once: {history:?}");
    assert!(history.dials[2].0 >= DRAIN, "{history:?}");
    assert_eq!((history.waits(), errors(&history).len()), (0, 0), "{history:?}");
}

/// Under a supervisor the dial reaches the successor.
#[test]
fn a_handoff_moves_before_it_lets_go() {
    let world = |_, at: Duration| if at < SECOND { Does::Restart(Life::Long) } else { Does::Serve };
    let history = live(world, settings(Restart::Handoff), Luck::LONG, 60 * SECOND);
    assert_eq!((history.dials.len(), history.retired, history.gaps.len()), (2, 1, 1), "{history:?}");
}

#[test]
fn redial_moves_off_a_session_that_was_told_at_once_with_a_growing_pause() {
    let world = |_, _| Does::Restart(Life::Short);
    let history = live(world, settings(Restart::Redial), Luck::LONG, 9 * SECOND);
    let times: Vec<_> = history.dials.iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(times, [0, 1, 3, 7], "{history:?}");
}

#[test]
fn wait_serves_until_the_close() {
    for life in [Life::Short, Life::Healthy] {
        let world = |_, at: Duration| if at < SECOND { Does::Restart(life) } else { Does::Serve };
        let history = live(world, settings(Restart::Wait), Luck::LONG, 60 * SECOND);
        assert_eq!(history.dials.len(), 2, "{history:?}");
        assert!(history.dials[1].0 >= DRAIN, "{history:?}");
    }
}

#[test]
fn once_ends_cleanly_at_any_goaway() {
    for restart in [Restart::Redial, Restart::Wait, Restart::Handoff] {
        for life in Life::ALL {
            for does in [Does::Restart(life), Does::Redirect(1, life), Does::Mislead(life)] {
                let settings = Settings { once: true, ..settings(restart) };
                let history = live(|_, _| does, settings, Luck::LONG, 60 * SECOND);
                assert_eq!(history.dials.len(), 1, "{history:?}");
                assert!(matches!(history.ended, Some((_, None))), "{history:?}");
            }
        }
    }
    let settings = Settings { once: true, ..settings(Restart::Handoff) };
    let history = live(|_, _| Does::Fail, settings, Luck::LONG, 60 * SECOND);
    assert!(matches!(history.ended, Some((_, Some(Failure::Passing(_))))), "{history:?}");
}

#[test]
fn a_refused_redirect_is_served_out_and_dialed_again() {
    let world = |_, at: Duration| if at < SECOND { Does::Mislead(Life::Healthy) } else { Does::Serve };
    let history = live(world, settings(Restart::Handoff), Luck::LONG, 60 * SECOND);
    assert_eq!(places(&history), [0, 0]);
    assert!(history.dials[1].0 >= DRAIN, "{history:?}");
}

/// The replacement was healthy, so its predecessor was about to be closed; then it is the only one left.
#[test]
fn a_replacement_that_is_lost_leaves_its_predecessor_serving() {
    let world = |_, at: Duration| match at.as_secs() {
        0 => Does::Restart(Life::Healthy),
        1..=2 => Does::Close(Life::Healthy),
        _ => Does::Fail,
    };
    let history = live(world, settings(Restart::Handoff), Luck::LONG, 60 * SECOND);
    assert_eq!(history.retired, 0, "{history:?}");
    assert!(history.gaps.len() == 2 && history.gaps[1].0 >= DRAIN, "dark only when the first is closed: {history:?}");
}

/// A redirect is an assignment: a lost session is dialed where it was, until the next sequence.
#[test]
fn a_redirect_sticks_within_its_sequence() {
    let world = |place, at: Duration| match (place, at.as_secs()) {
        (0, 0) => Does::Redirect(1, Life::Healthy),
        (1, 0..10) => Does::Close(Life::Healthy),
        (1, 10..60) => Does::Fail,
        _ => Does::Serve,
    };
    let history = live(world, settings(Restart::Handoff), Luck::LONG, 120 * SECOND);
    assert_eq!(places(&history).first(), Some(&0));
    assert_eq!(places(&history).last(), Some(&0), "{history:?}");
    assert!(places(&history)[1..history.dials.len() - 1].iter().all(|place| *place == 1), "{history:?}");
    assert!(matches!(errors(&history)[..], [(_, Error::TimedOut { .. })]), "{history:?}");
}

#[test]
fn a_lost_healthy_session_is_dialed_at_once_and_a_failing_dial_backs_off() {
    let world = |_, at: Duration| if at < SECOND { Does::Close(Life::Healthy) } else { Does::Fail };
    let history = live(world, settings(Restart::Handoff), Luck::LONG, 13 * SECOND);
    let times: Vec<_> = history.dials.iter().map(|(at, _)| at.as_secs()).collect();
    // At 16 the sequence's time is up.
    assert_eq!(times, [0, 1, 2, 4, 8], "{history:?}");
}

#[test]
fn a_final_refusal_rests_longer_and_longer() {
    let history = live(|_, _| Does::Refuse, settings(Restart::Handoff), Luck::LONG, 100 * SECOND);
    let times: Vec<_> = history.dials.iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 61, 91], "{history:?}");
    assert!(errors(&history).iter().all(|(_, error)| matches!(error, Error::Refused(_))), "{history:?}");
}

/// A peer that names a new place each time would have us dial as fast as it answers.
#[test]
fn ever_new_places_are_damped() {
    let world = |place, _| Does::Redirect(place + 1, Life::Short);
    let history = live(world, settings(Restart::Handoff), Luck::SHORT, SECOND);
    assert!(history.dials.len() <= 10, "{history:?}");
}
