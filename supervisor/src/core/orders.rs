//! Orders to the driver that several parts of the lifecycle give.

use super::event::{Action, Kill, Note, Outcome, RequestId, Steering};
use super::generation::{ACKNOWLEDGE, Asked, Channel, Child, Escalation, GRACE, Pending, Role, STUCK, State, Step};
use super::time::Time;
use super::{Core, Holder, Phase};
use protocol::message::{Generation, ToChild};
use std::time::Duration;

/// How a generation is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It said that it ends; it has the grace for that.
    Wait,
    /// SIGTERM, and SIGKILL after the grace.
    Term,
    /// SIGKILL.
    Group,
}

impl Core {
    /// Begins to end a generation, or goes on to a harder way. Without a process yet, the signal waits for `Spawned`.
    pub(super) fn end(&mut self, now: Time, generation: Generation, how: End, out: &mut Vec<Action>) {
        let Some(child) = self.children.get_mut(&generation) else { return };
        let served = child.serves();
        let kill_at = now.after(GRACE);
        let escalation = match how {
            End::Wait => Escalation::Expected { kill_at },
            End::Term => Escalation::Terminated { kill_at },
            End::Group => Escalation::Killed { stuck_at: now.after(STUCK) },
        };
        child.state = State::Ending { served, escalation };
        child.pending = None;
        signal(generation, child, out);
    }

    /// Sends a message. Says whether the child could be told.
    pub(super) fn tell(&self, generation: Generation, message: ToChild, out: &mut Vec<Action>) -> bool {
        let Some(child) = self.children.get(&generation) else { return false };
        match child.channel {
            Channel::Open | Channel::Garbled => {
                out.push(Action::Send { generation, message });
                true
            }
            Channel::Lost { .. } => false,
        }
    }

    /// Gives a child a role that it has to acknowledge. Says whether it could be told.
    pub(super) fn assign(&mut self, now: Time, generation: Generation, role: Role, out: &mut Vec<Action>) -> bool {
        let seq = self.seq;
        let Some(child) = self.children.get_mut(&generation) else { return false };
        match child.channel {
            Channel::Open | Channel::Garbled => {}
            Channel::Lost { .. } => {
                child.pending = None;
                return false;
            }
        }
        self.seq += 1;
        child.pending = Some(Pending { seq, role, deadline: now.after(ACKNOWLEDGE) });
        let message = match role {
            Role::Activate => ToChild::Activate { seq },
            Role::Standby => ToChild::Standby { seq },
            Role::Drain { timeout } => ToChild::Drain { seq, timeout_ms: millis(timeout), spread_ms: None },
            Role::Undrain => ToChild::Undrain { seq },
        };
        out.push(Action::Send { generation, message });
        true
    }

    /// Makes a generation the one that gets the new handshakes, as far as it is concerned itself.
    pub(super) fn activate(&mut self, now: Time, generation: Generation, out: &mut Vec<Action>) {
        if let Some(child) = self.children.get_mut(&generation) {
            child.state = State::Active;
        }
        self.assign(now, generation, Role::Activate, out);
        self.backoff.activated(now);
    }

    /// Tells a generation to drain within `timeout`, or leaves it when it has to be done earlier already.
    pub(super) fn drain(&mut self, now: Time, generation: Generation, timeout: Duration, out: &mut Vec<Action>) {
        let wanted = now.after(timeout).after(GRACE);
        let Some(child) = self.children.get_mut(&generation) else { return };
        match &mut child.state {
            State::Draining { kill_at, asked } => {
                if *kill_at <= wanted {
                    return;
                }
                match asked {
                    Asked::Term => {
                        *kill_at = wanted;
                        return;
                    }
                    Asked::Message => {}
                }
            }
            State::Active | State::Standby => {}
            State::Starting { .. } | State::Ready | State::Ending { .. } => return,
        }
        child.state = State::Draining { kill_at: wanted, asked: Asked::Message };
        if !self.assign(now, generation, Role::Drain { timeout }, out) {
            self.drain_by_signal(generation, out);
        }
    }

    /// SIGTERM in place of `drain`.
    pub(super) fn drain_by_signal(&mut self, generation: Generation, out: &mut Vec<Action>) {
        let Some(child) = self.children.get_mut(&generation) else { return };
        match &mut child.state {
            State::Draining { asked, .. } => *asked = Asked::Term,
            State::Starting { .. } | State::Ready | State::Active | State::Standby | State::Ending { .. } => return,
        }
        out.push(Action::Kill { generation, how: Kill::Term });
    }

    /// Orders the steering that the states call for, if it is not the last that was ordered.
    pub(super) fn steer(&mut self, out: &mut Vec<Action>) {
        let Some(steering) = self.steering_wanted() else { return };
        if self.steering.as_ref() != Some(&steering) {
            out.push(Action::Steer(steering.clone()));
            self.steering = Some(steering);
            self.steer_again = None;
        }
    }

    /// The steering that the states call for; `None`: leave it as it is.
    pub(super) fn steering_wanted(&self) -> Option<Steering> {
        let (held, active) = match &self.phase {
            Phase::Idle | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => return None,
            Phase::First { .. } => (None, None),
            Phase::Serving { active, .. } => (None, Some(*active)),
            Phase::Down { holder, .. } => match holder {
                Holder::Dead { generation, .. } => (Some(*generation), Some(*generation)),
                Holder::StandIn { generation } => (None, Some(*generation)),
                Holder::Nobody => (None, None),
            },
        };
        let ready = self.candidate().filter(|generation| self.is_ready(*generation));
        let mut live: Vec<_> =
            self.children.iter().filter(|(_, child)| child.serves()).map(|(generation, _)| *generation).collect();
        if ready.is_none() {
            live.extend(held);
            live.sort_unstable();
        }
        Some(Steering { live, active: ready.or(active)?, canary: None })
    }

    /// Turns UDP_GRO on again when only the active generation is left.
    pub(super) fn settle_gro(&mut self, out: &mut Vec<Action>) {
        if self.gro || self.children.len() != 1 {
            return;
        }
        let Some((&generation, child)) = self.children.iter().next() else { return };
        match child.state {
            State::Active => {}
            State::Starting { .. } | State::Ready | State::Standby | State::Draining { .. } | State::Ending { .. } => {
                return;
            }
        }
        self.gro = true;
        out.push(Action::Gro { on: true });
        self.tell(generation, ToChild::Gro { on: true }, out);
        self.tell(generation, ToChild::Alone, out);
    }

    /// Turns UDP_GRO off before a second generation gets its sockets, on before the only one does.
    pub(super) fn prepare_gro(&mut self, out: &mut Vec<Action>) {
        let on = self.children.len() <= 1;
        if self.gro == on {
            return;
        }
        self.gro = on;
        out.push(Action::Gro { on });
        for (&generation, child) in &self.children {
            if child.is_adopted() {
                self.tell(generation, ToChild::Gro { on }, out);
            }
        }
    }

    /// Answers all who wait.
    pub(super) fn reply(waiters: Vec<RequestId>, outcome: &Outcome, out: &mut Vec<Action>) {
        out.extend(waiters.into_iter().map(|to| Action::Reply { to, outcome: outcome.clone() }));
    }

    /// The generation that is to become active next, if one is on its way.
    pub(super) fn candidate(&self) -> Option<Generation> {
        match &self.phase {
            Phase::First { generation } => Some(*generation),
            Phase::Serving { upgrade, .. } => upgrade.as_ref().and_then(super::Upgrade::starting),
            Phase::Down { respawn, .. } => respawn.running(),
            Phase::Idle | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => None,
        }
    }

    /// Whether it said `ready` and its switch is not confirmed yet.
    pub(super) fn is_ready(&self, generation: Generation) -> bool {
        self.children.get(&generation).is_some_and(|child| child.state == State::Ready)
    }

    /// The generation on standby.
    pub(super) fn standby(&self) -> Option<Generation> {
        self.children.iter().find(|(_, child)| child.state == State::Standby).map(|(generation, _)| *generation)
    }
}

/// Sends the signal that the escalation calls for, if there is a process.
pub(super) fn signal(generation: Generation, child: &Child, out: &mut Vec<Action>) {
    if child.pid.is_none() {
        return;
    }
    match &child.state {
        State::Ending { escalation, .. } => match escalation {
            Escalation::Expected { .. } => {}
            Escalation::Terminated { .. } => out.push(Action::Kill { generation, how: Kill::Term }),
            Escalation::Killed { .. } | Escalation::Stuck => {
                out.push(Action::Kill { generation, how: Kill::Group });
            }
        },
        State::Starting { step: Step::Spawning | Step::Greeting | Step::Adopting | Step::Adopted, .. }
        | State::Ready
        | State::Active
        | State::Standby
        | State::Draining { .. } => {}
    }
}

/// One line for the log.
pub(super) fn info(text: String) -> Action {
    Action::Note(Note::Info(text))
}

/// One line for the log, of something to look at.
pub(super) fn warn(text: String) -> Action {
    Action::Note(Note::Warn(text))
}

/// Whole milliseconds, as messages carry them.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
