//! Going on with the lifecycle of an earlier supervisor process.

use super::event::{Action, Note, Settings};
use super::generation::{Asked, Channel, Child, Escalation, GRACE, Role, STATS_TIMEOUT, STOP_TIMEOUT, State};
use super::handoff::LATE_VERDICT;
use super::orders::{End, info, signal, warn};
use super::speaker::Audience;
use super::time::Time;
use super::{Attempt, Core, Health, Holder, Left, Phase, Respawn, Stage, Upgrade};
use protocol::cid::MAX_GENERATION;
use protocol::message::{Generation, ToChild};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One generation, as any version of the supervisor understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Which.
    pub generation: Generation,
    /// Its process; `None` for a dead one, and for one that was ordered and not started.
    pub pid: Option<u32>,
    /// What it is for.
    pub part: Part,
}

/// What a generation is for, as any version of the supervisor understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// It is not active yet.
    Starting,
    /// It gets the new handshakes.
    Active,
    /// It can become active again at once.
    Standby,
    /// It is being ended.
    Ending,
    /// It has no process; what waits in its sockets is for its successor.
    Dead,
    /// It lets its sessions go; or a word of a later version, since to drain is what any generation can do.
    #[serde(other)]
    Draining,
}

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

    /// A lifecycle with these generations, of which no more is known. The active one stays active (without one, the
    /// youngest standby becomes it), the others drain, and those that were not ready are ended. To be followed by
    /// [`super::Event::Resume`].
    #[must_use]
    pub fn degraded(
        settings: Settings,
        seed: u64,
        now: Time,
        next: u32,
        gro: bool,
        survivors: &[Survivor],
        gone: &[Generation],
    ) -> Self {
        let youngest = |part| {
            let of = survivors.iter().filter(|survivor| survivor.part == part);
            of.map(|survivor| survivor.generation).max()
        };
        let active = youngest(Part::Active).or_else(|| youngest(Part::Standby));
        let mut core = Self { gro, ..Self::new(settings, seed) };
        for survivor in survivors {
            let state = match survivor.part {
                Part::Dead => continue,
                _ if Some(survivor.generation) == active => State::Active,
                Part::Active | Part::Standby | Part::Draining => {
                    let kill_at = now.after(core.settings.drain_timeout).after(GRACE);
                    State::Draining { kill_at, asked: Asked::Message }
                }
                Part::Starting | Part::Ending => {
                    let escalation = Escalation::Terminated { kill_at: now.after(GRACE) };
                    // One that was starting may have been ready and steered to.
                    State::Ending { served: true, escalation }
                }
            };
            let child = Child { state, pid: survivor.pid, ..Child::new(now, core.settings.ready_timeout) };
            core.children.insert(survivor.generation, child);
        }
        let respawn = Respawn { failed: 0, step: Attempt::Waiting { at: now }, waiters: Vec::new() };
        core.phase = match (active, youngest(Part::Dead)) {
            (Some(active), _) => Phase::Serving { active, upgrade: None },
            (None, Some(generation)) => Phase::Down { holder: Holder::Dead { generation, flush_at: now }, respawn },
            (None, None) if core.children.is_empty() => Phase::Idle,
            (None, None) => Phase::Down { holder: Holder::Nobody, respawn },
        };
        let dead: Vec<_> = gone.iter().filter(|gone| !core.children.contains_key(gone)).copied().collect();
        core.mourn_unknown(now, &dead);
        let numbers = survivors.iter().map(|survivor| survivor.generation.0).chain(gone.iter().map(|gone| gone.0));
        let highest = numbers.max().unwrap_or(0);
        core.next = next.max(highest.saturating_add(1));
        core
    }

    /// Every live generation, and a dead one whose sockets are held, as any version understands it.
    #[must_use]
    pub fn survivors(&self) -> Vec<Survivor> {
        let mut survivors: Vec<Survivor> = self
            .children
            .iter()
            .map(|(&generation, child)| {
                let part = match child.state {
                    State::Starting { .. } | State::Ready => Part::Starting,
                    State::Active => Part::Active,
                    State::Standby => Part::Standby,
                    State::Draining { .. } => Part::Draining,
                    State::Ending { .. } => Part::Ending,
                };
                Survivor { generation, pid: child.pid, part }
            })
            .collect();
        survivors.extend(self.held().map(|generation| Survivor { generation, pid: None, part: Part::Dead }));
        survivors
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
            Phase::First { .. } if self.next <= MAX_GENERATION && !self.switches() => {
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
    /// sessions: it is steered to again.
    fn drop_candidates(&mut self, now: Time, out: &mut Vec<Action>) {
        for generation in self.live() {
            let Some(child) = self.children.get_mut(&generation) else { continue };
            if child.pid.is_none() {
                // Ordered, but there never was a process, or nobody will ever know which.
                self.children.remove(&generation);
                out.push(Action::Retire { generation });
                continue;
            }
            // It serves on sockets that packets have always been steered to, whether it has said that it is ready or not.
            if child.takes_over.is_some() && child.is_adopted() && matches!(child.state, State::Starting { .. }) {
                child.state = State::Ready;
            }
            match child.state {
                State::Ready if !matches!(child.channel, Channel::Lost { .. }) => {}
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

    /// Whether somebody is about to become active.
    fn switches(&self) -> bool {
        self.candidate().is_some_and(|candidate| self.is_ready(candidate))
    }

    /// Puts the phase back to where what was lost is done again.
    fn begin_anew(&mut self, now: Time) {
        let standby = self.standby();
        let switches = self.switches();
        let probation = || {
            let commit_at = now.after(self.settings.probation);
            let health = if self.settings.health { Health::Waiting } else { Health::Unprobed };
            Stage::Probation { commit_at, give_up_at: commit_at.after(LATE_VERDICT), health }
        };
        match &mut self.phase {
            Phase::Serving { upgrade: Some(Upgrade { stage, .. }), .. } => match stage {
                Stage::Starting { .. } if switches => {}
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
                Attempt::Running { .. } if switches => {}
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
                    (Left::Service, None) if self.children.is_empty() => Phase::Idle,
                    (Left::Service, None) => Phase::Down { holder: Holder::Nobody, respawn },
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
    fn held(&self) -> Option<Generation> {
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
