//! An upgrade up to `ready`: triggers, room, the check command, the spawn, and how all that can fail.

use super::event::{Action, Deny, Outcome, RequestId, SpawnError};
use super::generation::{Child, State};
use super::orders::{End, info, warn};
use super::snapshot::FailureView;
use super::time::Time;
use super::{Attempt, Core, ExitStatus, Phase, Queued, Stage, Upgrade, Verdict};
use protocol::cid::MAX_GENERATION;
use protocol::exit;
use protocol::message::Generation;

/// Why a generation that was starting or ready can't become active.
pub(super) struct Failure {
    /// One line for the operator.
    pub(super) reason: String,
    /// Set when it ended by itself.
    pub(super) status: Option<ExitStatus>,
    /// What the supervisor ends with if it was the first one.
    pub(super) verdict: Verdict,
}

impl Failure {
    /// One that the child had no part in, or that its own exit status says nothing about.
    pub(super) const fn not_ready(reason: String) -> Self {
        Self { reason, status: None, verdict: Verdict::Status(exit::NOT_READY) }
    }
}

impl Core {
    pub(super) fn start(&mut self, now: Time, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Idle => {}
            Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => return,
        }
        let generation = self.take_number();
        self.phase = Phase::First { generation };
        self.spawn(now, generation, out);
    }

    pub(super) fn upgrade_requested(
        &mut self,
        now: Time,
        waiter: Option<RequestId>,
        evict_oldest: bool,
        out: &mut Vec<Action>,
    ) {
        match &mut self.phase {
            Phase::Idle | Phase::First { .. } => self.fold(waiter, evict_oldest),
            Phase::Serving { upgrade, .. } => match upgrade {
                Some(_) => self.fold(waiter, evict_oldest),
                None => self.begin(now, waiter.into_iter().collect(), evict_oldest, out),
            },
            Phase::Down { respawn, .. } => match &mut respawn.step {
                Attempt::Running { .. } => self.fold(waiter, evict_oldest),
                Attempt::Waiting { at } => {
                    *at = now;
                    respawn.waiters.extend(waiter);
                }
            },
            Phase::Stopping { .. } | Phase::Ended => deny(waiter, "upgrade", Deny::Stopping, out),
            Phase::Leaving { .. } => deny(waiter, "upgrade", Deny::Leaving, out),
        }
    }

    /// Joins the triggers that become one more upgrade.
    fn fold(&mut self, waiter: Option<RequestId>, evict_oldest: bool) {
        let queued = self.queued.get_or_insert_default();
        queued.waiters.extend(waiter);
        queued.evict_oldest |= evict_oldest;
    }

    /// Begins the upgrade that was folded while the one before was in flight.
    pub(super) fn begin_queued(&mut self, now: Time, out: &mut Vec<Action>) {
        if let Some(Queued { waiters, evict_oldest }) = self.queued.take() {
            self.begin(now, waiters, evict_oldest, out);
        }
    }

    /// Begins an upgrade while one is active and none is in flight.
    fn begin(&mut self, now: Time, waiters: Vec<RequestId>, evict_oldest: bool, out: &mut Vec<Action>) {
        if self.next > MAX_GENERATION {
            deny_all(waiters, "upgrade", &Deny::OutOfGenerations, out);
            self.announce(out);
            return;
        }
        if !self.has_room() && !self.is_one_about_to_end() {
            let Some(oldest) = self.oldest_draining().filter(|_| evict_oldest) else {
                let deny = self.too_many(now);
                deny_all(waiters, "upgrade", &deny, out);
                self.announce(out);
                return;
            };
            out.push(warn(format!("generation {oldest} is evicted to make room for an upgrade")));
            self.end(now, oldest, End::Group, out);
        }
        match &mut self.phase {
            Phase::Serving { upgrade, .. } => *upgrade = Some(Upgrade { waiters, stage: Stage::Room }),
            Phase::Idle
            | Phase::First { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
        self.use_room(now, out);
    }

    /// Goes on with an upgrade that waited for room once there is some.
    pub(super) fn use_room(&mut self, now: Time, out: &mut Vec<Action>) {
        let room = self.has_room();
        let deadline = now.after(self.settings.ready_timeout);
        let check = self.settings.check;
        let generation = Generation(self.next);
        match &mut self.phase {
            Phase::Serving { upgrade: Some(Upgrade { stage: stage @ Stage::Room, .. }), .. } if room => {
                *stage = if check { Stage::Checking { generation, deadline } } else { Stage::Starting { generation } };
            }
            Phase::Serving { .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => return,
        }
        self.take_number();
        if check {
            out.push(Action::Check { generation });
        } else {
            self.spawn(now, generation, out);
        }
    }

    pub(super) fn checked(
        &mut self,
        now: Time,
        generation: Generation,
        result: Result<(), String>,
        out: &mut Vec<Action>,
    ) {
        match &mut self.phase {
            Phase::Serving { upgrade: Some(Upgrade { stage, .. }), .. } => match stage {
                Stage::Checking { generation: wanted, .. } if *wanted == generation => match result {
                    Ok(()) => {
                        *stage = Stage::Starting { generation };
                        self.spawn(now, generation, out);
                    }
                    Err(reason) => self.check_failed(now, generation, format!("check command: {reason}"), out),
                },
                Stage::Checking { .. } | Stage::Room | Stage::Starting { .. } | Stage::Probation { .. } => {}
            },
            Phase::Serving { upgrade: None, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
    }

    /// Ends an upgrade whose check command said no or nothing.
    pub(super) fn check_failed(&mut self, now: Time, generation: Generation, reason: String, out: &mut Vec<Action>) {
        self.candidate_failed(now, generation, Failure::not_ready(reason), out);
    }

    pub(super) fn spawn(&mut self, now: Time, generation: Generation, out: &mut Vec<Action>) {
        self.children.insert(generation, Child::new(now, self.settings.ready_timeout));
        out.push(Action::Spawn { generation });
    }

    pub(super) fn spawn_failed(&mut self, now: Time, generation: Generation, error: SpawnError, out: &mut Vec<Action>) {
        // Only what has no process yet can fail to get one.
        if self.children.get(&generation).is_none_or(|child| child.pid.is_some()) {
            return;
        }
        self.children.remove(&generation);
        let (status, reason) = match error {
            SpawnError::NotFound(reason) => (exit::NOT_FOUND, reason),
            SpawnError::NotExecutable(reason) => (exit::NOT_EXECUTABLE, reason),
            SpawnError::Other(reason) => (exit::FAILURE, reason),
        };
        if self.candidate() == Some(generation) {
            let failure = Failure { reason, status: None, verdict: Verdict::Status(status) };
            self.candidate_failed(now, generation, failure, out);
        }
        out.push(Action::Retire { generation });
    }

    /// Ends the attempt to make `generation` the active one. Its process, if there is one, is the caller's to end.
    pub(super) fn candidate_failed(
        &mut self,
        now: Time,
        generation: Generation,
        failure: Failure,
        out: &mut Vec<Action>,
    ) {
        let Failure { reason, status, verdict } = failure;
        out.push(warn(format!("generation {generation} failed before it was active: {reason}")));
        self.last_failure = Some(FailureView { generation, reason: reason.clone(), status });
        let outcome = Outcome::Failed { generation, reason };
        match &mut self.phase {
            Phase::First { .. } => {
                self.phase = Phase::Stopping { verdict };
                let waiters = self.queued.take().unwrap_or_default().waiters;
                Self::reply(waiters, &outcome, out);
            }
            Phase::Serving { upgrade, .. } => {
                let waiters = upgrade.take().map(|upgrade| upgrade.waiters).unwrap_or_default();
                self.steer(out);
                Self::reply(waiters, &outcome, out);
                self.announce(out);
                self.begin_queued(now, out);
            }
            Phase::Down { respawn, .. } => {
                let waiters = std::mem::take(&mut respawn.waiters);
                Self::reply(waiters, &outcome, out);
                self.respawn_failed(now, out);
            }
            Phase::Idle | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => {}
        }
    }

    /// A number that no generation had.
    pub(super) fn take_number(&mut self) -> Generation {
        let generation = Generation(self.next);
        self.next += 1;
        generation
    }

    /// Whether one more may live. What hangs in the kernel does not count: it may do so for ever.
    pub(super) fn has_room(&self) -> bool {
        let live = self.children.values().filter(|child| !child.is_stuck()).count();
        live < self.settings.max_generations
    }

    /// Whether a place will be free soon.
    pub(super) fn is_one_about_to_end(&self) -> bool {
        self.children.values().any(Child::is_about_to_end)
    }

    fn oldest_draining(&self) -> Option<Generation> {
        self.children
            .iter()
            .find(|(_, child)| matches!(child.state, State::Draining { .. }))
            .map(|(generation, _)| *generation)
    }

    fn too_many(&self, now: Time) -> Deny {
        let oldest = self.oldest_draining().or_else(|| self.children.keys().next().copied());
        let child = oldest.and_then(|oldest| self.children.get(&oldest));
        let left = child.and_then(|child| child.drain_left(now));
        Deny::TooMany {
            oldest: oldest.unwrap_or(Generation(self.next)),
            sessions: child.map_or(0, |child| child.stats.sessions),
            left: left.unwrap_or_default(),
        }
    }
}

/// Refuses a request.
pub(super) fn deny(waiter: Option<RequestId>, request: &str, deny: Deny, out: &mut Vec<Action>) {
    deny_all(waiter.into_iter().collect(), request, &deny, out);
}

fn deny_all(waiters: Vec<RequestId>, request: &str, deny: &Deny, out: &mut Vec<Action>) {
    if waiters.is_empty() {
        out.push(warn(format!("{request} denied: {}", reason(deny))));
    } else {
        out.push(info(format!("{request} denied: {}", reason(deny))));
        Core::reply(waiters, &Outcome::Denied(deny.clone()), out);
    }
}

fn reason(deny: &Deny) -> String {
    match deny {
        Deny::Stopping => "the service is stopping".to_owned(),
        Deny::TooMany { oldest, sessions, left } => format!(
            "as many generations live as may; the oldest, {oldest}, has {sessions} sessions and {} s left",
            left.as_secs()
        ),
        Deny::NoProbation => "no probation is running".to_owned(),
        Deny::NotStored => "sockets, channels and state are not in an fd store".to_owned(),
        Deny::Leaving => "this supervisor is leaving".to_owned(),
        Deny::OutOfGenerations => "the generation numbers are used up".to_owned(),
    }
}
