//! Going on with the lifecycle of an earlier supervisor process.

use super::event::{Action, Note, Settings};
use super::generation::{Asked, Channel, Child, GRACE, Role, STATS_TIMEOUT, STOP_TIMEOUT, State, Step};
use super::handoff::LATE_VERDICT;
use super::orders::{End, info, signal, warn};
use super::speaker::Audience;
use super::time::Time;
use super::{Attempt, Core, Health, Holder, Left, Phase, Respawn, Stage, Upgrade};
use protocol::cid::MAX_GENERATION;
use protocol::message::{Generation, ToChild};
use std::time::Duration;

impl Core {
    /// The very lifecycle of an earlier process, under the settings of this one. To be followed by
    /// [`super::Event::Resume`]. `None` when it contradicts itself.
    #[must_use]
    pub fn restored(saved: Self, settings: Settings) -> Option<Self> {
        let mut core = Self { settings, ..saved };
        // They asked a process that is gone.
        core.forget_waiters();
        core.is_sound().then_some(core)
    }

    /// The number of the next generation.
    #[must_use]
    pub const fn next_generation(&self) -> u32 {
        self.next
    }

    /// Whether the supervisor leaves for another one to go on.
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving { .. }) || self.left.is_some()
    }

    /// Whether it has ended, and nothing is left for another supervisor.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended) && self.left.is_none()
    }

    /// How long a generation may take to drain by itself, at most: when nobody tells it how long.
    #[must_use]
    pub fn longest_own_drain(&self) -> Duration {
        let own = |child: &Child| child.about.as_ref().and_then(|about| about.drain_timeout).unwrap_or(STOP_TIMEOUT);
        self.children.values().map(own).max().unwrap_or(STOP_TIMEOUT)
    }

    /// Whether everything drains: nothing new is begun.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. } | Phase::Ended) && self.left.is_none()
    }

    /// Whether an upgrade could begin now: there is something to replace, and none is in flight. Then nobody waits
    /// either, and another process can go on without losing anything.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let idle = match &self.phase {
            Phase::Serving { upgrade, .. } => upgrade.is_none(),
            Phase::Down { respawn, .. } => respawn.running().is_none() && respawn.waiters.is_empty(),
            Phase::Idle | Phase::First { .. } | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => false,
        };
        idle && self.queued.is_none()
    }

    pub(super) fn resume(&mut self, now: Time, upgrade: bool, out: &mut Vec<Action>) {
        // The service manager may have started us anew: it waits for READY=1.
        self.announced = false;
        self.steering = None;
        self.steer_again = None;
        // They may not have heard.
        self.audience = Audience::default();
        if let Some(left) = self.left.take() {
            self.phase = Phase::Leaving { left };
        }
        let first = matches!(self.phase, Phase::First { .. } | Phase::Idle);
        self.drop_candidates(now, out);
        self.begin_anew(now);
        out.push(info(format!("going on with {} generations of an earlier supervisor", self.children.len())));
        out.push(Action::Gro { on: self.gro });
        for generation in self.live() {
            self.remind(now, generation, out);
        }
        self.steer(out);
        match self.phase {
            Phase::Idle => self.start(now, out),
            Phase::First { .. } if self.next <= MAX_GENERATION && !self.candidate_goes_on() => {
                let generation = self.take_number();
                self.phase = Phase::First { generation };
                self.spawn(now, generation, out);
            }
            Phase::Stopping { .. } => {
                // In this order: a service that stops before it is ready counts as one that can't start.
                self.announce(out);
                out.push(Action::Note(Note::Stopping));
            }
            Phase::First { .. } | Phase::Serving { .. } | Phase::Down { .. } | Phase::Leaving { .. } | Phase::Ended => {
            }
        }
        if upgrade && !first {
            self.upgrade_requested(now, None, false, out);
        }
        match &self.phase {
            // The switch of the upgrade, or its failure, announces.
            Phase::Serving { upgrade: Some(_), .. } if upgrade => {}
            Phase::Serving { .. } | Phase::Down { .. } => self.announce(out),
            Phase::Idle | Phase::First { .. } | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => {}
        }
    }

    /// Ends those that were not ready yet: of their messages some may be lost. A ready one may have been steered to, and have
    /// sessions: it is steered to again. So may one with the sockets of a dead one, which are steered to all the time: it
    /// goes on, for as long as a new one would have; if its `ready` is what was lost, its first sessions say so
    /// ([`Core::message`]).
    fn drop_candidates(&mut self, now: Time, out: &mut Vec<Action>) {
        for generation in self.live() {
            let Some(child) = self.children.get_mut(&generation) else { continue };
            if child.pid.is_none() {
                // Ordered, but there never was a process, or nobody will ever know which.
                self.children.remove(&generation);
                out.push(Action::Retire { generation });
                continue;
            }
            let can_be_heard = child.can_be_told();
            match &mut child.state {
                State::Ready if can_be_heard => {}
                State::Starting { step: Step::Adopted, deadline, limit }
                    if can_be_heard && child.takes_over.is_some() =>
                {
                    // Nobody has listened to it for a while.
                    *deadline = now.after(self.settings.ready_timeout);
                    *limit = (*limit).max(*deadline);
                }
                State::Starting { .. } | State::Ready => {
                    out.push(warn(format!("generation {generation} was not ready: it is ended and started again")));
                    self.end(now, generation, End::Term, out);
                }
                // The signal may not have been sent.
                State::Ending { .. } => signal(generation, child, out),
                State::Active | State::Standby | State::Draining { .. } => {}
            }
        }
    }

    /// Whether somebody is still on its way to become active.
    fn candidate_goes_on(&self) -> bool {
        let candidate = self.candidate().and_then(|candidate| self.children.get(&candidate));
        candidate.is_some_and(|child| !child.is_ending())
    }

    /// Puts the phase back to where what was lost is done again.
    fn begin_anew(&mut self, now: Time) {
        let standby = self.standby();
        let goes_on = self.candidate_goes_on();
        let probation = || {
            let commit_at = now.after(self.settings.probation);
            let health = if self.settings.health { Health::Waiting } else { Health::Unprobed };
            Stage::Probation { commit_at, give_up_at: commit_at.after(LATE_VERDICT), health }
        };
        match &mut self.phase {
            Phase::Serving { upgrade: Some(Upgrade { stage, .. }), .. } => match stage {
                Stage::Starting { .. } if goes_on => {}
                Stage::Checking { .. } | Stage::Starting { .. } => *stage = Stage::Room,
                Stage::Probation { give_up_at, health, .. } => {
                    if *health != Health::Unprobed || self.settings.health {
                        *health = if self.settings.health { Health::Waiting } else { Health::Unprobed };
                        *give_up_at = (*give_up_at).max(now.after(LATE_VERDICT));
                    }
                }
                Stage::Room => {}
            },
            Phase::Down { respawn, .. } => match respawn.step {
                Attempt::Running { .. } if goes_on => {}
                Attempt::Running { .. } => respawn.step = Attempt::Waiting { at: now },
                Attempt::Waiting { .. } => {}
            },
            Phase::Leaving { left } => {
                let active = self.children.iter().find(|(_, child)| child.state == State::Active);
                let respawn = Respawn { failed: 0, step: Attempt::Waiting { at: now }, waiters: Vec::new() };
                self.phase = match (std::mem::replace(left, Left::Service), active) {
                    (Left::Service, Some((&active, _))) => {
                        let upgrade = standby.map(|_| Upgrade { waiters: Vec::new(), stage: probation() });
                        Phase::Serving { active, upgrade }
                    }
                    // Nothing has ever been active.
                    (Left::Service, None) => Phase::Idle,
                    (Left::Down { holder }, _) => Phase::Down { holder, respawn },
                };
            }
            Phase::Serving { upgrade: None, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Stopping { .. }
            | Phase::Ended => {}
        }
    }

    /// Says again what a generation may not have heard.
    fn remind(&mut self, now: Time, generation: Generation, out: &mut Vec<Action>) {
        let stands_in = match &self.phase {
            Phase::Down { holder: Holder::StandIn { generation: stand_in }, .. } => *stand_in == generation,
            Phase::Down { holder: Holder::Dead { .. } | Holder::Nobody, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => false,
        };
        let alone = self.children.len() == 1;
        let Some(child) = self.children.get_mut(&generation) else { return };
        child.stats_due = child.stats_due.map(|_| now.after(STATS_TIMEOUT));
        child.heir_of.clear();
        match &child.channel {
            // It can't be told, and what had to be done by a signal has been.
            Channel::Lost { .. } => return,
            Channel::Open | Channel::Garbled => {}
        }
        if child.is_adopted() {
            self.tell(generation, ToChild::Gro { on: self.gro }, out);
        }
        let Some(child) = self.children.get(&generation) else { return };
        let role = match child.state {
            State::Active if stands_in => Role::Undrain,
            State::Active => {
                if alone {
                    self.tell(generation, ToChild::Alone, out);
                }
                Role::Activate
            }
            State::Standby => Role::Standby,
            State::Draining { asked: Asked::Message, kill_at } => {
                Role::Drain { timeout: now.until(kill_at).saturating_sub(GRACE) }
            }
            // A second SIGTERM would end its sessions at once.
            State::Draining { asked: Asked::Term, .. } => return,
            State::Starting { .. } | State::Ready | State::Ending { .. } => return,
        };
        self.assign(now, generation, role, out);
    }

    /// The dead generation whose sockets are held.
    pub(super) fn held(&self) -> Option<Generation> {
        let holder = match (&self.phase, &self.left) {
            (Phase::Down { holder, .. } | Phase::Leaving { left: Left::Down { holder } }, _)
            | (Phase::Ended, Some(Left::Down { holder })) => holder,
            (Phase::Ended, Some(Left::Service) | None)
            | (Phase::Leaving { left: Left::Service }, _)
            | (Phase::Idle | Phase::First { .. } | Phase::Serving { .. } | Phase::Stopping { .. }, _) => return None,
        };
        match holder {
            Holder::Dead { generation, .. } => Some(*generation),
            Holder::StandIn { .. } | Holder::Nobody => None,
        }
    }

    /// Whether what it says about one generation is true of the others.
    fn is_sound(&self) -> bool {
        let is_active =
            |generation: &Generation| self.children.get(generation).is_some_and(|child| child.state == State::Active);
        let phase = match &self.phase {
            Phase::Serving { active, upgrade } => {
                let candidate = upgrade.as_ref().and_then(Upgrade::starting);
                is_active(active) && candidate.is_none_or(|candidate| self.children.contains_key(&candidate))
            }
            Phase::Down { holder: Holder::StandIn { generation }, .. } => is_active(generation),
            Phase::Down { holder: Holder::Dead { generation, .. }, .. } => !self.children.contains_key(generation),
            Phase::Down { holder: Holder::Nobody, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. } => true,
            // Without this there is nothing to go on with.
            Phase::Ended => self.left.is_some(),
        };
        // To answer for one that lives would be to end its connections.
        let dead = self.mourned.keys().all(|gone| !self.children.contains_key(gone) && gone.0 < self.next);
        phase && dead && self.children.keys().all(|generation| generation.0 < self.next)
    }

    /// Forgets who waits, but not what for.
    fn forget_waiters(&mut self) {
        match &mut self.phase {
            Phase::Serving { upgrade: Some(upgrade), .. } => upgrade.waiters.clear(),
            Phase::Down { respawn, .. } => respawn.waiters.clear(),
            Phase::Serving { upgrade: None, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
        self.queued.iter_mut().for_each(|queued| queued.waiters.clear());
    }
}
