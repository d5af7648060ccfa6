//! Stop, leave and reload.

use super::event::{Action, Deny, Note, Outcome};
use super::generation::{Child, Escalation, STOP_TIMEOUT, State};
use super::orders::{End, info, warn};
use super::time::Time;
use super::upgrade::deny;
use super::{Core, Left, Phase, Stage, Upgrade, Verdict};
use protocol::exit;
use protocol::message::{Generation, ToChild};

impl Core {
    pub(super) fn stop_requested(&mut self, now: Time, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Idle | Phase::First { .. } | Phase::Serving { .. } | Phase::Down { .. } | Phase::Leaving { .. } => {
                self.stop_all(now, out);
            }
            Phase::Stopping { .. } => {
                out.push(info("stop at once".to_owned()));
                for generation in self.live() {
                    self.end_unless_killed(now, generation, out);
                }
            }
            Phase::Ended => {}
        }
    }

    /// Ends those that are not ready and drains the others.
    pub(super) fn stop_all(&mut self, now: Time, out: &mut Vec<Action>) {
        out.push(Action::Note(Note::Stopping));
        self.abandon_upgrade(&Deny::Stopping, out);
        self.retire_held(out);
        self.phase = Phase::Stopping { verdict: Verdict::Status(exit::OK) };
        for generation in self.live() {
            let Some(child) = self.children.get(&generation) else { continue };
            match child.state {
                State::Starting { .. } | State::Ready => self.end(now, generation, End::Term, out),
                State::Active | State::Standby | State::Draining { .. } => {
                    let own = child.about.as_ref().and_then(|about| about.drain_timeout);
                    let timeout = self.settings.stop_timeout.or(own).unwrap_or(STOP_TIMEOUT);
                    self.drain(now, generation, timeout, out);
                }
                State::Ending { .. } => {}
            }
        }
    }

    pub(super) fn leave_requested(&mut self, now: Time, stored: bool, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Stopping { .. } | Phase::Ended => {
                deny(None, "leave", Deny::Stopping, out);
                return;
            }
            Phase::Leaving { .. } => return,
            Phase::Idle | Phase::First { .. } | Phase::Serving { .. } | Phase::Down { .. } => {}
        }
        if !stored {
            deny(None, "leave", Deny::NotStored, out);
            return;
        }
        out.push(info("leaving: the generations serve on, the next supervisor picks them up".to_owned()));
        self.abandon_upgrade(&Deny::Leaving, out);
        let left = match &self.phase {
            Phase::Down { holder, .. } => Left::Down { holder: holder.clone() },
            Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => Left::Service,
        };
        self.phase = Phase::Leaving { left };
        for generation in self.live() {
            match self.children.get(&generation).map(|child| &child.state) {
                Some(State::Starting { .. } | State::Ready) => self.end(now, generation, End::Term, out),
                Some(State::Active | State::Standby | State::Draining { .. } | State::Ending { .. }) | None => {}
            }
        }
    }

    /// Ends what belongs to an upgrade but is not a generation, and answers all who wait.
    fn abandon_upgrade(&mut self, reason: &Deny, out: &mut Vec<Action>) {
        match &self.phase {
            Phase::Serving { upgrade: Some(Upgrade { stage: Stage::Checking { generation, .. }, .. }), .. } => {
                out.push(Action::StopCheck { generation: *generation });
            }
            Phase::Serving { .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
        let mut waiters = self.end_probation(out).map(|(_, waiters)| waiters).unwrap_or_default();
        waiters.extend(self.take_waiters());
        Self::reply(waiters, &Outcome::Denied(reason.clone()), out);
    }

    pub(super) fn reload_requested(&self, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => return,
            Phase::Idle | Phase::First { .. } | Phase::Serving { .. } | Phase::Down { .. } => {}
        }
        for (&generation, child) in &self.children {
            if child.is_adopted() {
                self.tell(generation, ToChild::Reload, out);
            }
        }
    }

    /// Ends the loop when nothing is left to wait for.
    pub(super) fn finish(&mut self, out: &mut Vec<Action>) {
        let status = match self.phase {
            Phase::Stopping { verdict } if self.children.values().all(Child::is_stuck) => match verdict {
                Verdict::Status(status) => status,
                Verdict::Own { .. } => exit::NOT_READY,
            },
            Phase::Leaving { .. } if !self.is_one_about_to_end() => exit::OK,
            Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Down { .. }
            | Phase::Ended => return,
        };
        self.left = match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Leaving { left } => Some(left),
            Phase::Stopping { .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Down { .. }
            | Phase::Ended => None,
        };
        out.push(Action::Exit { status });
    }

    /// SIGKILL at the end of a grace.
    pub(super) fn end_unless_killed(&mut self, now: Time, generation: Generation, out: &mut Vec<Action>) {
        let killed = self.children.get(&generation).is_some_and(|child| match child.state {
            State::Ending { escalation, .. } => match escalation {
                Escalation::Killed { .. } | Escalation::Stuck => true,
                Escalation::Expected { .. } | Escalation::Terminated { .. } => false,
            },
            State::Starting { .. } | State::Ready | State::Active | State::Standby | State::Draining { .. } => false,
        });
        if !killed {
            out.push(warn(format!("generation {generation} is killed")));
            self.end(now, generation, End::Group, out);
        }
    }

    /// The live generations, oldest first.
    pub(super) fn live(&self) -> Vec<Generation> {
        self.children.keys().copied().collect()
    }
}
