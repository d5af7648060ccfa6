//! Which orders are right after what was seen.

use super::{Process, Told, Watch, require};
use protocol::message::{Generation, ToChild};
use std::time::Duration;
use supervisor::core::{Action, GRACE, Kill, Note, STUCK, Time};

impl Watch {
    pub(super) fn obey(&mut self, now: Time, action: &Action) -> Result<(), String> {
        let answer = matches!(action, Action::Reply { .. } | Action::Note(_));
        require(answer || self.exit.is_none(), "an order after the end")?;
        match action {
            Action::Check { generation } => self.checking = Some(*generation),
            Action::StopCheck { .. } => self.checking = None,
            Action::Rekey => {
                require(self.processes.is_empty() && self.held.is_empty(), "new keys while something is there")?;
                (self.steering, self.ordered, self.last) = (None, None, None);
                self.steers.clear();
                self.lost.clear();
            }
            Action::Spawn { generation } => {
                require(!self.ending, "spawn in a stop")?;
                require(self.checking.is_none(), "spawn beside a check command")?;
                let mut starting = self.processes.values().filter(|process| process.running && !process.steered);
                let in_flight = starting.any(|process| process.killed.is_none() && !process.failed);
                require(!in_flight, "two upgrades in flight")?;
                let known = self.processes.insert(*generation, Process::new()).is_some();
                require(!known && !self.held.contains(generation), "a number used twice")?;
                self.last = self.last.max(Some(*generation));
                let live = self.processes.values().filter(|process| !process.is_stuck(now)).count();
                require(live <= self.settings.max_generations, "more than max-generations live")?;
            }
            Action::Heir { generation, dead } => self.heir(*generation, dead)?,
            Action::Forget { generation } => {
                // A refused one had no sockets; it is forgotten all the same.
                let gone = self.gone.remove(generation);
                require(!self.processes.contains_key(generation), "a live one is forgotten")?;
                let early = gone.is_some_and(|gone| gone.at.until(now) < Duration::from_secs(10));
                let mut never_served = self.gone.values().filter(|gone| !gone.ready && !gone.steered);
                let has_clients = early && gone.is_some_and(|gone| gone.steered);
                require(!has_clients || never_served.next().is_none(), "one with clients is forgotten first")?;
                require(!early || self.gone.len() > 30 || self.processes.is_empty(), "forgotten too early")?;
            }
            Action::Adopt { generation, gro, older_live, links, takes_over, .. } => {
                let others = self.processes.len() > 1;
                require(*gro == self.gro && *gro != others, "UDP_GRO does not fit the number of live generations")?;
                require(*older_live == others, "older_live is wrong")?;
                require(takes_over.is_none_or(|dead| self.held.contains(&dead)), "takes over from a live one")?;
                let mut others = self.processes.iter().filter(|(other, _)| *other != generation);
                let linked = others.all(|(other, process)| links.contains(other) || !process.is_peer());
                require(linked, "not linked with one that serves")?;
                let peer = |other| self.processes.get(other).is_some_and(Process::can_be_peer);
                require(links.iter().all(peer) && links.is_sorted(), "linked with one that does not serve")?;
                let process = self.processes.get_mut(generation).ok_or("adopt for nobody")?;
                require(process.greeted && !process.adopted && !process.adopting, "adopt out of turn")?;
                (process.adopting, process.gro, process.takes_over) = (true, *gro, *takes_over);
            }
            Action::Send { generation, message } => self.send(now, *generation, message)?,
            Action::Gro { on } => {
                require(!on || self.processes.len() == 1, "UDP_GRO on beside another")?;
                self.gro = *on;
            }
            Action::Steer(steering) => {
                require(!self.ending, "steering changed in a stop")?;
                self.check_steering(steering)?;
                self.see_return(steering.active);
                self.steers.push_back(steering.clone());
                self.ordered = Some(steering.clone());
            }
            Action::Kill { generation, how } => {
                let process = self.processes.get_mut(generation).ok_or("signal for one that is gone")?;
                require(process.running, "signal before there is a process")?;
                require(process.killed != Some(Kill::Group), "signal after SIGKILL")?;
                process.killed = Some(*how);
                process.stuck_at = (*how == Kill::Group).then(|| now.after(STUCK));
                self.ending |= !self.serving;
            }
            Action::Retire { generation } => {
                require(self.held.remove(generation), "retired twice or while it lives")?;
                let clean =
                    self.ordered.as_ref().is_none_or(|s| s.active != *generation && !s.live.contains(generation));
                require(clean || self.ending || self.processes.is_empty(), "retired while steered to")?;
            }
            Action::Probe { generation } => {
                require(self.probing.replace(*generation).is_none(), "two probes")?;
                require(self.steering.as_ref().is_some_and(|s| s.active == *generation), "probe of an inactive one")?;
            }
            Action::StopProbe => require(self.probing.take().is_some(), "no probe to stop")?,
            Action::Reply { to, .. } => require(self.waiting.remove(to).is_some(), "answered twice, or nobody asked")?,
            Action::Note(note) => match note {
                Note::Serving => require(!std::mem::replace(&mut self.serving, true), "serving for the second time")?,
                Note::Changed | Note::Stopping | Note::Info(_) | Note::Warn(_) => {}
            },
            Action::Exit { status } => {
                require(self.waiting.is_empty(), "somebody waits at the end")?;
                let over = self.processes.values().all(|process| process.is_stuck(now)) && self.held.is_empty();
                require(self.left || over, "something lives at the end")?;
                require(self.ending, "ends unasked")?;
                self.exit = Some(*status);
            }
        }
        Ok(())
    }

    /// Only the dead have heirs: those that get their packets, and in a stop the one that was told to drain last.
    fn heir(&mut self, generation: Generation, dead: &[Generation]) -> Result<(), String> {
        for dead in dead {
            require(!self.processes.contains_key(dead), "heir to a live one")?;
            require(!self.lost.contains(dead), "heir to one that may live")?;
            require(self.last.is_some_and(|last| *dead <= last), "heir to one that never was")?;
        }
        let steered = self.steering.as_ref().is_some_and(|steering| steering.active == generation);
        let is_left_over = self.ending && self.heir_in_a_stop() == Some(generation);
        let process = self.processes.get_mut(&generation).ok_or("heir that is gone")?;
        require(process.running && !process.unreachable, "heir that can't be told")?;
        let becomes_it = (process.adopted || process.ready) && process.told == Told::Nothing;
        let active = matches!(process.told, Told::Activate | Told::Undrain);
        let gets_packets = !self.ending && (steered || becomes_it || active);
        require(gets_packets || is_left_over, "heir that gets no packets of the dead")?;
        for dead in dead {
            require(process.heir_of.insert(*dead), "told twice to be an heir")?;
        }
        Ok(())
    }

    /// One at a time: who spoke before has been told to drain, is being ended, gone, or can't be told anything.
    fn speaks(&mut self, generation: Generation) -> Result<(), String> {
        let before = self.speaker.replace(generation).filter(|before| *before != generation);
        require(!before.is_some_and(|before| self.still_speaks(before)), "two speak for the node")
    }

    /// Whether one that was told to speak has no reason to have stopped.
    pub(super) fn still_speaks(&self, generation: Generation) -> bool {
        let process = self.processes.get(&generation);
        let process = process.filter(|process| process.killed.is_none() && !process.unreachable && !process.failed);
        process.is_some_and(|process| !matches!(process.told, Told::Drain { .. }))
    }

    fn send(&mut self, now: Time, generation: Generation, message: &ToChild) -> Result<(), String> {
        let ending = self.ending;
        let in_force = self.steering.as_ref().is_some_and(|steering| steering.active == generation);
        let wanted = self.is_wanted(generation);
        let process = self.processes.get_mut(&generation).ok_or("message for one that is gone")?;
        require(process.running && !process.unreachable, "message for one that can't be told")?;
        let role = match *message {
            ToChild::Activate { seq } => {
                require(wanted && process.ready, "activate without steering to it")?;
                require(process.told != Told::Undrain, "activate for a stand-in")?;
                require(process.told != Told::Activate, "activate for the active one")?;
                process.told = Told::Activate;
                Some(seq)
            }
            ToChild::Standby { seq } => {
                require(!in_force && process.told == Told::Activate, "standby while it is steered to")?;
                process.told = Told::Standby;
                Some(seq)
            }
            ToChild::Drain { seq, timeout_ms, .. } => {
                require(ending || (!in_force && !wanted), "GOAWAY before the switch")?;
                let ends = now.after(Duration::from_millis(timeout_ms)).after(GRACE);
                if let Told::Drain { ends: earlier } = process.told {
                    require(ends < earlier, "a longer drain after a shorter one")?;
                }
                process.told = Told::Drain { ends };
                Some(seq)
            }
            ToChild::Undrain { seq } => {
                require(matches!(process.told, Told::Drain { .. }), "undrain for one that does not drain")?;
                process.told = Told::Undrain;
                Some(seq)
            }
            ToChild::Gro { on } => {
                require(on == self.gro, "told the wrong UDP_GRO")?;
                process.gro = on;
                None
            }
            ToChild::Alone => {
                require(self.processes.len() == 1, "alone beside another")?;
                None
            }
            ToChild::Refused { .. } => {
                process.failed = true;
                self.ending |= !self.serving;
                None
            }
            ToChild::Reload => None,
            ToChild::Counters { speaks, ref generations, .. } => {
                let may =
                    matches!(process.told, Told::Activate | Told::Undrain) || (speaks && process.told == Told::Standby);
                require(may, "one that gets no new clients answers for the node")?;
                let others = self.processes.keys().filter(|other| **other != generation);
                require(others.eq(generations.iter().map(|one| &one.generation)), "counters of others than there are")?;
                if speaks {
                    self.speaks(generation)?;
                }
                None
            }
            ToChild::Adopt(_)
            | ToChild::Canary { .. }
            | ToChild::Heir { .. }
            | ToChild::Link { .. }
            | ToChild::Unsupported { .. } => return Err(format!("{message:?} is not the core's")),
        };
        if let Some(seq) = role {
            require(seq > self.last_role, "role numbers go back")?;
            self.last_role = seq;
            if let Some(process) = self.processes.get_mut(&generation) {
                process.role = Some(seq);
            }
        }
        Ok(())
    }
}
