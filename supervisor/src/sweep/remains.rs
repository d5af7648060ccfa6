//! Whom to end: what a service has left in its unit, and never who has come there since.

use crate::stat::Stat;
use crate::state::{ProcessEntry, Whereabouts};
use crate::unit::Unit;
use std::fs;
use std::process;

/// Processes that were there at some moment, with all that they have started since. They are told from later ones with
/// the same number by the time of their start.
#[derive(Debug)]
pub(super) struct Remains<'a> {
    unit: &'a Unit,
    known: Vec<Seen>,
}

/// One process, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    pid: u32,
    parent: u32,
    started: u64,
}

impl<'a> Remains<'a> {
    /// Everybody in the unit but us. To be called while nobody can start it, as in ExecStopPost=.
    pub(super) fn everybody(unit: &'a Unit) -> Self {
        Self { unit, known: look(unit) }
    }

    /// Everybody in the unit but us who was there before it was started again. To be called once the last supervisor is
    /// gone: one that systemd itself has started is then another one already, and so is whoever is younger than it.
    pub(super) fn of_the_last_service(unit: &'a Unit) -> Self {
        let all = look(unit);
        let again = all.iter().filter(|seen| is_started_by_systemd(seen.pid)).map(|seen| seen.started).min();
        Self { unit, known: before(all, again) }
    }

    /// Whether none is left.
    pub(super) fn are_gone(&mut self) -> bool {
        self.known = follow(&self.known, look(self.unit));
        self.known.is_empty()
    }

    /// Sends a signal to each.
    pub(super) fn signal(&mut self, signal: i32) {
        self.known = follow(&self.known, look(self.unit));
        for Seen { pid, started, .. } in &self.known {
            let entry = ProcessEntry { pid: *pid, started: Some(*started) };
            match entry.find() {
                Whereabouts::Lives(process) => {
                    // It has just ended.
                    let _ = process.send_signal(signal);
                }
                Whereabouts::Ended | Whereabouts::Unknown(_) => {}
            }
        }
    }
}

/// The processes of the unit, without ourselves.
fn look(unit: &Unit) -> Vec<Seen> {
    let pids = unit.processes().into_iter().filter(|pid| *pid != process::id());
    let seen = |pid: u32| Stat::of(pid).map(|stat| Seen { pid, parent: stat.parent, started: stat.started });
    pids.filter_map(seen).collect()
}

/// Those that were started before this moment.
fn before(mut all: Vec<Seen>, moment: Option<u64>) -> Vec<Seen> {
    all.retain(|seen| moment.is_none_or(|moment| seen.started < moment));
    all
}

/// Of those that are there now: the known ones, and what descends from them. (An orphan of one that has ended since the
/// look before is missed, if nobody saw it: looks are frequent.)
fn follow(known: &[Seen], now: Vec<Seen>) -> Vec<Seen> {
    let is_known = |seen: &Seen| known.iter().any(|known| (known.pid, known.started) == (seen.pid, seen.started));
    let (mut theirs, mut others): (Vec<Seen>, Vec<Seen>) = now.into_iter().partition(is_known);
    loop {
        let (more, rest): (Vec<Seen>, Vec<Seen>) =
            others.into_iter().partition(|seen| theirs.iter().any(|parent| parent.pid == seen.parent));
        if more.is_empty() {
            return theirs;
        }
        theirs.extend(more);
        others = rest;
    }
}

/// Whether it is the main process of a service, or another that systemd runs for it: $SYSTEMD_EXEC_PID (systemd.exec(5))
/// is its own number. What these start inherits the variable with a number that is not its own.
fn is_started_by_systemd(pid: u32) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let variable = format!("SYSTEMD_EXEC_PID={pid}");
    environment.split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seen(pid: u32, parent: u32, started: u64) -> Seen {
        Seen { pid, parent, started }
    }

    #[test]
    fn whoever_came_with_or_after_a_new_main_process_is_not_of_the_last_service() {
        let all = vec![seen(7, 1, 70), seen(9, 1, 90), seen(10, 9, 90), seen(11, 9, 95)];
        assert_eq!(before(all.clone(), Some(90)), [seen(7, 1, 70)]);
        assert_eq!(before(all.clone(), None), all);
    }

    #[test]
    fn what_remains_is_followed_over_its_children_and_nobody_else_is() {
        let known = [seen(7, 1, 70), seen(8, 7, 80)];
        // 7 has started 20, which has started 21; 8 has ended, and another has its number; 30 is a new service with a child.
        let now =
            vec![seen(21, 20, 96), seen(20, 7, 95), seen(7, 1, 70), seen(8, 30, 99), seen(30, 1, 97), seen(31, 30, 98)];
        let mut theirs = follow(&known, now);
        theirs.sort_unstable_by_key(|seen| seen.pid);
        assert_eq!(theirs, [seen(7, 1, 70), seen(20, 7, 95), seen(21, 20, 96)]);
        // An orphan that was seen before its parent's end stays one of them.
        assert_eq!(follow(&theirs, vec![seen(21, 1, 96), seen(30, 1, 97)]), [seen(21, 1, 96)]);
        assert!(follow(&theirs, vec![seen(30, 1, 97)]).is_empty());
    }
}
