//! How many connections a server has, and in what state.

use tokio::sync::watch;

/// Counts of a server; the first two are of now, the others since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) setup: u64,
    pub(super) sessions: u64,
    pub(super) handshakes: u64,
    pub(super) forced: u64,
}

impl Counts {
    pub(super) const fn open(self) -> u64 {
        self.setup + self.sessions
    }
}

/// The counts, watched for changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(watch::Sender<Counts>);

impl Tally {
    pub(super) fn watch(&self) -> watch::Receiver<Counts> {
        self.0.subscribe()
    }

    pub(super) fn counts(&self) -> Counts {
        *self.0.borrow()
    }

    /// A connection counts from its first packet, so that a drain waits for its handshake.
    pub(super) fn begin(&self) -> Counted {
        self.0.send_modify(|counts| counts.setup += 1);
        Counted { tally: self.clone(), established: false }
    }

    /// All that are open now are being closed.
    pub(super) fn force(&self) {
        self.0.send_modify(|counts| counts.forced += counts.open());
    }
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    tally: Tally,
    established: bool,
}

impl Counted {
    /// Its handshake is complete.
    pub(super) fn establish(&mut self) {
        if !self.established {
            self.established = true;
            self.tally.0.send_modify(|counts| {
                counts.setup -= 1;
                counts.sessions += 1;
                counts.handshakes += 1;
            });
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.tally.0.send_modify(|counts| {
            if self.established {
                counts.sessions -= 1;
            } else {
                counts.setup -= 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_from_its_first_packet_to_its_end() {
        let tally = Tally::default();
        let (mut one, other) = (tally.begin(), tally.begin());
        one.establish();
        one.establish();
        assert_eq!(tally.counts(), Counts { setup: 1, sessions: 1, handshakes: 1, forced: 0 });
        drop(other);
        tally.force();
        drop(one);
        assert_eq!(tally.counts(), Counts { setup: 0, sessions: 0, handshakes: 1, forced: 1 });
    }
}
