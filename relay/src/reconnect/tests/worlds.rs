//! Every world of up to three relays that each always do the same.

use super::world::{Does, Life, Place, live};
use super::{MS, SECOND, initial, settings};
use crate::reconnect::{Error, Luck, Report, Restart};

/// Everything that one of `relays` can do.
fn everything(relays: usize) -> Vec<Does> {
    let mut all = vec![Does::Serve, Does::Fail, Does::Refuse];
    for life in Life::ALL {
        all.extend([Does::Restart(life), Does::Mislead(life), Does::Close(life)]);
        all.extend((0..relays).map(|to| Does::Redirect(to, life)));
    }
    all
}

/// The relays that redirects lead to from the first one; whether they lead back; whether each session on the way is
/// stable.
fn path(world: &[Does]) -> (Vec<Place>, bool, bool) {
    let mut path = vec![0];
    let mut stable = true;
    loop {
        let here = path[path.len() - 1];
        let Does::Redirect(to, life) = world[here] else { return (path, false, stable) };
        if to == here {
            // Where it is: a restart.
            return (path, false, stable);
        }
        stable &= life == Life::Long;
        if path.contains(&to) {
            return (path, true, stable);
        }
        path.push(to);
    }
}

/// [`live`] itself checks what holds in every world; here is what depends on it.
#[test]
fn every_world_of_three_relays_is_walked_through_as_promised() {
    let all = everything(3);
    let mut walked = 0;
    for first in &all {
        for second in &all {
            for third in &all {
                let world = [*first, *second, *third];
                let reached = path(&world).0;
                if (0..3).any(|place| world[place] != Does::Serve && !reached.contains(&place)) {
                    // The same as the world in which those that are never met serve.
                    continue;
                }
                for luck in [Luck::SHORT, Luck::LONG] {
                    check(&world, luck);
                    walked += 1;
                }
            }
        }
    }
    assert!(walked > 1_000, "{walked}");
}

fn check(world: &[Does; 3], luck: Luck) {
    let history = live(|place, _| world[place], initial(100 * MS), luck, 40 * SECOND);
    let (path, leads_back, stable) = path(world);
    let dials: Vec<_> = history.dials.iter().map(|(_, place)| *place).collect();
    assert!(dials.starts_with(&path[..dials.len().min(path.len())]), "{world:?}: {history:?}");
    // Healthy sessions are moved off at once, so a life of 101 ms allows 10 dials a second.
    assert!(history.busiest_second() <= 12, "{world:?}: {history:?}");
    let last = world[path[path.len() - 1]];
    if !leads_back {
        let dialed = |by| history.dials.iter().filter(|(dial, _)| *dial <= by).count();
        let waits = history.reports.iter().filter(|(_, report)| matches!(report, Report::Waiting(_)));
        assert_eq!(waits.filter(|(at, _)| dialed(*at) < path.len()).count(), 0, "{world:?}: {history:?}");
        if last == Does::Serve {
            assert_eq!((dials.len(), history.waits()), (path.len(), 0), "{world:?}: {history:?}");
        }
    }
    let looped = history.reports.iter().any(|(_, report)| matches!(report, Report::Ended(Error::RedirectLoop(_), _)));
    assert!(!looped || leads_back, "{world:?}: {history:?}");
    if leads_back && !stable && path.iter().all(|place| !matches!(world[*place], Does::Redirect(_, Life::Long))) {
        assert!(looped, "{world:?}: {history:?}");
    }
}

/// Whatever the answer to a restart is, the invariants of [`live`] hold in every world of two.
#[test]
fn every_world_of_two_relays_keeps_the_invariants_under_each_policy() {
    let all = everything(2);
    for restart in [Restart::Redial, Restart::Wait, Restart::Handoff] {
        for world in all.iter().flat_map(|first| all.iter().map(move |second| [*first, *second])) {
            for luck in [Luck::SHORT, Luck::LONG] {
                let history = live(|place, _| world[place], settings(restart), luck, 60 * SECOND);
                assert!(history.busiest_second() <= 6, "{restart:?} {world:?}: {history:?}");
            }
        }
    }
}
