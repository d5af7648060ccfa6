//! What holds between any two events, and what has to follow at once.

use super::{Told, Watch, require};
use protocol::message::Generation;
use supervisor::core::{Event, Kill, Steering, Time};

impl Watch {
    /// Only a ready one that is not leaving, a dead one whose sockets are held, or a stand-in gets new handshakes.
    pub(super) fn check_steering(&self, steering: &Steering) -> Result<(), String> {
        match self.processes.get(&steering.active) {
            Some(process) => {
                require(process.ready, "steering to an unready one")?;
                require(!matches!(process.told, Told::Drain { .. }), "steering to a draining one")?;
                require(process.killed.is_none(), "steering to one that is being ended")?;
                let others = self.processes.values().filter(|other| other.adopted || other.adopting).count() > 1;
                require(!others || !self.gro, "a switch with UDP_GRO on")?;
            }
            None => require(self.held.contains(&steering.active), "steering to a gone one")?,
        }
        for generation in &steering.live {
            match self.processes.get(generation) {
                Some(process) => require(process.ready, "an unready one has a live range")?,
                None => require(*generation == steering.active, "a gone one has a live range")?,
            }
        }
        require(steering.live.contains(&steering.active), "the active one has no live range")?;
        require(steering.live.is_sorted(), "live ranges out of order")
    }

    /// What holds between any two events.
    pub(super) fn check(&self, now: Time, next_deadline: Option<Time>) -> Result<(), String> {
        require(next_deadline.is_none_or(|deadline| deadline > now), "a deadline is overdue")?;
        if self.exit.is_some() {
            return require(next_deadline.is_none(), "a deadline after the end");
        }
        for process in self.processes.values() {
            if let Told::Drain { ends } = process.told {
                require(ends > now || process.killed == Some(Kill::Group), "a drain goes on after its deadline")?;
            }
        }
        let in_time = |latest: &Time| !self.timed || *latest > now;
        require(self.waiting.values().all(in_time), "a request waits too long")?;
        require(self.end_by.as_ref().is_none_or(in_time), "a stop takes too long")?;
        let moves = next_deadline.is_some() || self.something_is_due();
        require(moves || !self.started || self.waiting.is_empty(), "an upgrade that nothing ends")?;
        require(moves || !self.ending, "a stop that nothing ends")?;
        if self.ending {
            // After `leave`, the next supervisor tells.
            return if self.left { Ok(()) } else { self.check_heir_in_a_stop() };
        }
        require(self.serving || self.starting(), "nothing is on the way")?;
        if self.serving {
            self.check_active(moves)?;
        }
        Ok(())
    }

    /// In a stop: of those that drain, listen and can be told, the youngest.
    pub(super) fn heir_in_a_stop(&self) -> Option<Generation> {
        let mut drain = self.processes.iter().filter(|(_, process)| {
            matches!(process.told, Told::Drain { .. }) && process.killed.is_none() && !process.unreachable
        });
        drain.next_back().map(|(generation, _)| *generation)
    }

    /// As long as somebody can, the clients of the dead are told.
    fn check_heir_in_a_stop(&self) -> Result<(), String> {
        let heir = self.heir_in_a_stop().and_then(|heir| self.processes.get(&heir));
        let tells = heir.is_none_or(|heir| self.gone.keys().all(|gone| heir.heir_of.contains(gone)));
        require(tells, "nobody tells the clients of one that died in a stop")
    }

    /// Exactly one generation is active while any can be.
    fn check_active(&self, moves: bool) -> Result<(), String> {
        let mut active = self.processes.keys().filter(|generation| self.is_active(**generation));
        let first = active.next();
        require(active.next().is_none(), "two are active")?;
        let Some(generation) = first else {
            require(self.standby().is_none(), "nobody is active beside a standby")?;
            return require(moves, "nobody is active and nothing is on the way");
        };
        let active = self.processes.get(generation);
        let unknown = active.and_then(|active| self.gone.keys().find(|gone| !active.heir_of.contains(gone)));
        let told = active.is_some_and(|active| active.unreachable) || unknown.is_none();
        require(told, "the active one is not heir to all the dead")?;
        let wanted = self.ordered.as_ref();
        let candidate = wanted.filter(|wanted| self.processes.get(&wanted.active).is_some_and(|p| !p.steered));
        let right = wanted.is_some_and(|wanted| wanted.active == *generation) || candidate.is_some();
        require(right, "the active one is not steered to")?;
        let alone = self.processes.len() == 1;
        let told = self.processes.get(generation).is_some_and(|process| process.gro || process.unreachable);
        require(!alone || (self.gro && told), "UDP_GRO is off although one is left")
    }

    /// What has to follow at once from one event.
    pub(super) fn check_reaction(&self, seen: &Self, after: &Self, event: &Event) -> Result<(), String> {
        let Event::Exited { generation, .. } = event else { return Ok(()) };
        let was_active = self.is_active(*generation);
        let standby = seen.standby();
        if let (true, Some(standby), false) = (was_active, standby, seen.ending) {
            let told = after.processes.get(&standby).is_some_and(|p| p.told == Told::Activate || p.unreachable);
            require(told, "the standby did not take over")?;
        }
        Ok(())
    }
}
