//! What has happened in a storm, and whether anything was lost that must not be.

use crate::client::handshake::INITIAL_PTO;
use crate::systemd::SESSIONS;
use anyhow::ensure;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A moment, since the storm began.
pub type Moment = Duration;

/// Everything that counts.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// How often each fault was dealt.
    pub faults: BTreeMap<String, usize>,
    /// Relays that were killed, by their process inside the sandbox, and when that was done.
    pub killed: BTreeMap<u32, Moment>,
    /// Relays that drain, by their process, and when that was seen first: they take no handshakes from then on.
    pub draining: BTreeMap<u32, Moment>,
    /// From when to when a relay was installed that dies while it serves.
    pub mortal: Vec<(Moment, Moment)>,
    /// Sessions that ended before their client ended them.
    pub lost: Vec<Loss>,
    /// Handshakes that failed.
    pub failed: Vec<Failure>,
    /// Handshakes that succeeded.
    pub completed: usize,
    /// Sessions that their clients ended.
    pub sessions: usize,
    /// Packets that reached a relay that they were not for, by generation: what it said last.
    pub foreign: BTreeMap<u32, u64>,
}

/// What the clients of one relay send in the moment of its death: two packets of each session.
const PACKETS_OF_A_MOMENT: u64 = 2 * SESSIONS as u64;

/// A handshake that failed, or was all that came of a session.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When it began.
    pub begun: Moment,
    /// When it was complete, if it was: the relay did not live to say who it is.
    pub established: Option<Moment>,
    /// Why.
    pub why: String,
}

/// A session that was lost.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The relay that served it.
    pub server: Server,
    /// When it was noticed.
    pub when: Moment,
    /// Why.
    pub why: String,
}

/// Who serves a session, as the server itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its process, inside the sandbox.
    pub pid: u32,
    /// It was going to die.
    pub mortal: bool,
}

impl Record {
    /// Only sessions of relays that died were lost, and handshakes that such a relay had taken on; and no packet reached a
    /// relay that it was not for, but for what the clients of a dead one send until its heir has read that it is the heir.
    ///
    /// # Errors
    /// Something else was: the error names it.
    pub fn judge(&self) -> anyhow::Result<()> {
        let lost: Vec<&Loss> = self.lost.iter().filter(|loss| !self.has_died(loss.server)).collect();
        ensure!(lost.is_empty(), "sessions of relays that nobody killed were lost: {lost:?}\n{self}");
        let failed: Vec<_> = self.failed.iter().filter(|failure| !self.was_hit(failure)).collect();
        ensure!(failed.is_empty(), "handshakes failed with no relay that died under them: {failed:?}\n{self}");
        let (foreign, excused) = (self.foreign.values().sum::<u64>(), self.excused_packets());
        ensure!(
            foreign <= excused,
            "{foreign} packets reached other relays than their own, {excused} can be excused\n{self}"
        );
        Ok(())
    }

    /// Notes in which state a relay was found.
    pub fn seen(&mut self, pid: u32, drains: bool, when: Moment) {
        if drains {
            self.draining.entry(pid).or_insert(when);
        } else {
            // It may have been made active again, as the last one that is left.
            self.draining.remove(&pid);
        }
    }

    /// What reaches an heir before it has heard that it is one is taken back off its count then; but the heir may die before
    /// it has said so. That is once for each relay that died.
    fn excused_packets(&self) -> u64 {
        (self.killed.len() + self.mortal.len()) as u64 * PACKETS_OF_A_MOMENT
    }

    fn has_died(&self, server: Server) -> bool {
        server.mortal || self.killed.contains_key(&server.pid)
    }

    /// Whether a handshake can have been with a relay that died before its end. It takes milliseconds; one of which something
    /// was lost takes a probe timeout. A relay that had been draining before it began can't have had it.
    fn was_hit(&self, failure: &Failure) -> bool {
        let begun = failure.begun;
        let latest = failure.established.unwrap_or(begun) + 2 * INITIAL_PTO;
        let before = |died: Moment| begun <= died && died <= latest;
        let took_it = |pid: &u32| self.draining.get(pid).is_none_or(|since| begun <= *since);
        self.killed.iter().any(|(pid, died)| before(*died) && took_it(pid))
            || self.mortal.iter().any(|(from, to)| *from <= begun && begun <= *to)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lost, failed) = (self.lost.len(), self.failed.len());
        writeln!(f, "{} handshakes succeeded, {} sessions ended as they should", self.completed, self.sessions)?;
        writeln!(f, "with {} relays that were killed: {lost} sessions, {failed} handshakes", self.killed.len())?;
        write!(f, "faults: {:?}; foreign packets: {}", self.faults, self.foreign.values().sum::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn loss(pid: u32, mortal: bool) -> Loss {
        Loss { server: Server { pid, mortal }, when: 9 * SECOND, why: "timed out".to_owned() }
    }

    fn failure(begun: Moment) -> Failure {
        Failure { begun, established: None, why: "timed out".to_owned() }
    }

    /// Between its beginning and its end the relay may have been replaced, and killed.
    #[test]
    fn a_session_without_a_word_counts_from_the_beginning_of_its_handshake() {
        let mut record = Record { killed: [(7, 5 * SECOND)].into(), ..Record::default() };
        record.seen(7, true, 3 * SECOND);
        record.failed = vec![Failure { established: Some(4 * SECOND), ..failure(2 * SECOND) }];
        assert!(record.judge().is_ok());
        record.failed = vec![Failure { established: Some(6 * SECOND), ..failure(Duration::from_millis(3_500)) }];
        assert!(record.judge().is_err());
    }

    #[test]
    fn a_lost_session_is_excused_by_the_death_of_its_own_relay_alone() {
        let mut record = Record { killed: [(7, 5 * SECOND)].into(), ..Record::default() };
        record.lost = vec![loss(7, false), loss(8, true)];
        assert!(record.judge().is_ok());
        record.lost.push(loss(8, false));
        assert!(record.judge().is_err());
    }

    #[test]
    fn the_death_of_a_relay_that_drains_excuses_no_handshake_but_those_from_before() {
        let at = |begun: Duration| {
            let mut record = Record { killed: [(7, 5 * SECOND)].into(), ..Record::default() };
            record.failed = vec![failure(begun)];
            record
        };
        let drains = |mut record: Record| {
            record.seen(7, true, 4 * SECOND);
            record.seen(7, true, 5 * SECOND);
            record
        };
        let [before, after] = [3_900, 4_100].map(Duration::from_millis);
        assert!(drains(at(before)).judge().is_ok());
        assert!(drains(at(after)).judge().is_err());
        let mut again = drains(at(after));
        again.seen(7, false, 4 * SECOND);
        assert!(again.judge().is_ok(), "it was made active again");
    }

    #[test]
    fn one_foreign_packet_is_too_many_unless_a_relay_died() {
        let mut record = Record { foreign: [(1, 0), (2, 0)].into(), ..Record::default() };
        assert!(record.judge().is_ok());
        record.foreign.insert(2, 1);
        assert!(record.judge().is_err());
        record.killed.insert(7, SECOND);
        assert!(record.judge().is_ok());
        record.foreign.insert(1, PACKETS_OF_A_MOMENT);
        assert!(record.judge().is_err(), "one death excuses no more than one moment");
    }

    #[test]
    fn a_failed_handshake_is_excused_by_a_death_right_after_its_beginning_alone() {
        let at = |begun: Duration| Record {
            killed: [(7, 5 * SECOND)].into(),
            mortal: vec![(20 * SECOND, 21 * SECOND)],
            failed: vec![failure(begun)],
            ..Record::default()
        };
        for (begun, excused) in
            [(2_000, false), (4_000, true), (5_000, true), (5_001, false), (20_500, true), (21_500, false)]
        {
            assert_eq!(at(Duration::from_millis(begun)).judge().is_ok(), excused, "{begun}");
        }
    }
}
