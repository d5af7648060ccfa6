//! Deadlines, and what may go on once something has gone.

use super::event::Action;
use super::generation::{Channel, Child, Escalation, Role, STATS_TIMEOUT, State};
use super::orders::{End, warn};
use super::time::Time;
use super::upgrade::Failure;
use super::{Core, Phase, Stage, Upgrade};
use protocol::message::Generation;

impl Core {
    /// When to call [`Core::handle`] with [`super::Event::Tick`] at the latest; later than the `now` of the last call.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Ended => return None,
            Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. } => {}
        }
        let children = self.children.values().filter_map(Child::deadline);
        children.chain(self.upgrade_deadline()).chain(self.steer_again).chain(self.forget_deadline()).min()
    }

    /// Handles all that is due, and goes on with all that waited for something that has happened.
    pub(super) fn expire(&mut self, now: Time, out: &mut Vec<Action>) {
        loop {
            if self.steer_again.is_some_and(|again| again <= now) {
                self.steer_again(out);
            }
            for generation in self.live() {
                self.expire_pending(now, generation, out);
                self.expire_stats(now, generation, out);
                self.expire_state(now, generation, out);
            }
            self.expire_check(now, out);
            self.expire_probation(now, out);
            self.use_room(now, out);
            self.respawn(now, out);
            self.begin_probes(out);
            self.settle_gro(out);
            self.forget_mourned(now, out);
            self.settle_heirs(out);
            self.settle_audience(out);
            self.finish(out);
            if self.next_deadline().is_none_or(|deadline| deadline > now) {
                return;
            }
        }
    }

    /// A role that is not acknowledged: SIGTERM does what `drain` should have; the others are only reported.
    fn expire_pending(&mut self, now: Time, generation: Generation, out: &mut Vec<Action>) {
        let Some(child) = self.children.get_mut(&generation) else { return };
        let Some(pending) = child.pending.filter(|pending| pending.deadline <= now) else { return };
        child.pending = None;
        out.push(warn(format!("generation {generation} does not acknowledge {}", pending.role.name())));
        match pending.role {
            Role::Drain { .. } => self.drain_by_signal(generation, out),
            Role::Activate | Role::Standby | Role::Undrain => {}
        }
        // Nobody waits any longer for it to stop answering.
        self.counters_changed(generation, out);
    }

    /// Silence after `stats`: it hangs, as if it had said that it is not well.
    fn expire_stats(&mut self, now: Time, generation: Generation, out: &mut Vec<Action>) {
        let Some(child) = self.children.get_mut(&generation) else { return };
        if child.stats_deadline().is_none_or(|due| due > now) {
            return;
        }
        child.stats_due = None;
        let reason = format!("unhealthy: no stats for {} s", STATS_TIMEOUT.as_secs());
        self.unwell(now, generation, reason, End::Term, out);
    }

    fn expire_state(&mut self, now: Time, generation: Generation, out: &mut Vec<Action>) {
        let Some(child) = self.children.get(&generation) else { return };
        match &child.state {
            State::Starting { deadline, .. } => {
                let (reason, how) = match &child.channel {
                    Channel::Lost { error, exit_by } if *exit_by <= now => (error.clone(), End::Term),
                    Channel::Lost { .. } | Channel::Open | Channel::Garbled if *deadline <= now => {
                        ("it was not ready in time; --ready-timeout allows more".to_owned(), End::Group)
                    }
                    Channel::Lost { .. } | Channel::Open | Channel::Garbled => return,
                };
                self.end(now, generation, how, out);
                self.candidate_failed(now, generation, Failure::not_ready(reason), out);
            }
            State::Draining { kill_at, .. } if *kill_at <= now => {
                self.end_unless_killed(now, generation, out);
            }
            State::Ending { escalation, .. } => match escalation {
                Escalation::Expected { kill_at } | Escalation::Terminated { kill_at } if *kill_at <= now => {
                    self.end_unless_killed(now, generation, out);
                }
                Escalation::Killed { stuck_at } if *stuck_at <= now && child.pid.is_some() => {
                    self.give_up_waiting(generation, out);
                }
                Escalation::Expected { .. }
                | Escalation::Terminated { .. }
                | Escalation::Killed { .. }
                | Escalation::Stuck => {}
            },
            State::Draining { .. } | State::Ready | State::Active | State::Standby => {}
        }
    }

    /// Nothing waits any more for a process that hangs in the kernel.
    fn give_up_waiting(&mut self, generation: Generation, out: &mut Vec<Action>) {
        let Some(child) = self.children.get_mut(&generation) else { return };
        match &mut child.state {
            State::Ending { escalation, .. } => *escalation = Escalation::Stuck,
            State::Starting { .. } | State::Ready | State::Active | State::Standby | State::Draining { .. } => return,
        }
        out.push(warn(format!("generation {generation} does not end after SIGKILL")));
    }

    fn expire_check(&mut self, now: Time, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Serving {
                upgrade: Some(Upgrade { stage: Stage::Checking { generation, deadline }, .. }), ..
            } if deadline <= now => {
                out.push(Action::StopCheck { generation });
                self.check_failed(now, generation, "check command: no verdict in time".to_owned(), out);
            }
            Phase::Serving { .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
    }
}
