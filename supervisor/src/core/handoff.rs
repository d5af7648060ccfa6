//! The switch, probation, commit and rollback.

use super::event::{Action, Deny, Note, Outcome, RequestId};
use super::generation::{Channel, Role, State};
use super::orders::{End, info, warn};
use super::snapshot::FailureView;
use super::time::Time;
use super::upgrade::{Failure, deny};
use super::{Attempt, Core, Health, Holder, Phase, Stage, Upgrade};
use protocol::message::Generation;
use std::time::Duration;

/// How long after the end of the probation a successful probe may still come.
pub(super) const LATE_VERDICT: Duration = Duration::from_secs(5);
/// So many probes that fail in a row are a failure of the generation.
const PROBE_FAILURES: u8 = 3;
/// After a failed order to steer, the next attempt.
const STEER_AGAIN: Duration = Duration::from_secs(1);

impl Core {
    pub(super) fn steered(&mut self, now: Time, active: Generation, out: &mut Vec<Action>) {
        if self.candidate() == Some(active) && self.is_ready(active) {
            self.switched(now, active, out);
        }
    }

    pub(super) fn steer_failed(&mut self, now: Time, active: Generation, error: String, out: &mut Vec<Action>) {
        if self.candidate() == Some(active) && self.is_ready(active) {
            self.end(now, active, End::Term, out);
            self.candidate_failed(now, active, Failure::not_ready(format!("can't steer to it: {error}")), out);
            return;
        }
        let current = self.steering_wanted().is_some_and(|steering| steering.active == active);
        if current && self.steer_again.is_none() {
            out.push(warn(format!("can't steer to generation {active}, trying again: {error}")));
            self.steer_again = Some(now.after(STEER_AGAIN));
        }
    }

    /// Orders the current steering again.
    pub(super) fn steer_again(&mut self, out: &mut Vec<Action>) {
        self.steer_again = None;
        self.steering = None;
        self.steer(out);
    }

    /// The kernel steers to the new generation.
    fn switched(&mut self, now: Time, generation: Generation, out: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::First { .. } => {
                self.phase = Phase::Serving { active: generation, upgrade: None };
                out.push(Action::Gro { on: true });
                self.activate(now, generation, out);
                self.announce(out);
                out.push(info(format!("generation {generation} is active")));
                self.begin_queued(now, out);
            }
            Phase::Serving { active, upgrade } => {
                let old = std::mem::replace(active, generation);
                let probation = self.settings.probation;
                if let Some(upgrade) = upgrade {
                    let commit_at = now.after(probation);
                    upgrade.stage = Stage::Probation {
                        commit_at,
                        give_up_at: commit_at.after(LATE_VERDICT),
                        health: if self.settings.health { Health::Waiting } else { Health::Unprobed },
                    };
                }
                self.activate(now, generation, out);
                self.announce(out);
                if let Some(child) = self.children.get_mut(&old) {
                    child.state = State::Standby;
                }
                self.assign(now, old, Role::Standby, out);
                out.push(info(format!("generation {generation} is active, {old} is on standby")));
                if probation.is_zero() {
                    self.commit(now, out);
                }
            }
            Phase::Down { holder, respawn } => {
                let waiters = std::mem::take(&mut respawn.waiters);
                let held = match holder {
                    Holder::Dead { generation, .. } => Some(*generation),
                    Holder::StandIn { .. } | Holder::Nobody => None,
                };
                let stand_in = match holder {
                    Holder::StandIn { generation } => Some(*generation),
                    Holder::Dead { .. } | Holder::Nobody => None,
                };
                self.phase = Phase::Serving { active: generation, upgrade: None };
                self.activate(now, generation, out);
                self.announce(out);
                out.push(info(format!("generation {generation} is active after a crash")));
                if let Some(stand_in) = stand_in {
                    self.drain(now, stand_in, self.settings.drain_timeout, out);
                }
                out.extend(held.map(|generation| Action::Retire { generation }));
                Self::reply(waiters, &Outcome::Done { active: generation }, out);
                self.begin_queued(now, out);
            }
            Phase::Idle | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => {}
        }
    }

    /// Says once that the service serves.
    pub(super) fn announce(&mut self, out: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.announced, true) {
            out.push(Action::Note(Note::Serving));
        }
    }

    /// Begins the health probes once the standby has stopped accepting, or can't or won't say so.
    pub(super) fn begin_probes(&mut self, out: &mut Vec<Action>) {
        let standby = self.standby().and_then(|standby| self.children.get(&standby));
        if standby.is_some_and(|child| child.pending.is_some()) {
            return;
        }
        if let Phase::Serving { active, .. } = self.phase
            && let Some(health @ Health::Waiting) = self.health()
        {
            *health = Health::Failing(0);
            out.push(Action::Probe { generation: active });
        }
    }

    pub(super) fn probed(
        &mut self,
        now: Time,
        generation: Generation,
        result: Result<(), String>,
        out: &mut Vec<Action>,
    ) {
        match self.phase {
            Phase::Serving { active, .. } if active == generation => {}
            Phase::Serving { .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => return,
        }
        let Some(health) = self.health() else { return };
        let failures = match (*health, &result) {
            (Health::Unprobed | Health::Waiting, _) => return,
            (Health::Well | Health::Failing(_), Ok(())) => {
                *health = Health::Well;
                return;
            }
            (Health::Well, Err(_)) => 1,
            (Health::Failing(failures), Err(_)) => failures.saturating_add(1),
        };
        *health = Health::Failing(failures);
        if let (PROBE_FAILURES.., Err(reason)) = (failures, result) {
            self.not_well_on_probation(now, generation, format!("health probe: {reason}"), out);
        }
    }

    /// Handles what is due in a probation: commit, or the end of patience.
    pub(super) fn expire_probation(&mut self, now: Time, out: &mut Vec<Action>) {
        let Phase::Serving {
            active,
            upgrade: Some(Upgrade { stage: Stage::Probation { commit_at, give_up_at, health }, .. }),
        } = self.phase
        else {
            return;
        };
        let lost = self.children.get(&active).and_then(|child| match &child.channel {
            Channel::Lost { error, exit_by } if *exit_by <= now => Some(error.clone()),
            Channel::Lost { .. } | Channel::Open | Channel::Garbled => None,
        });
        if let Some(error) = lost
            && self.standby().is_some()
        {
            self.roll_back(now, active, error, End::Term, out);
            return;
        }
        match health {
            Health::Unprobed | Health::Well if commit_at <= now => self.commit(now, out),
            Health::Waiting | Health::Failing(_) if give_up_at <= now => {
                self.not_well_on_probation(now, active, "no health probe succeeded at the end".to_owned(), out);
            }
            Health::Unprobed | Health::Well | Health::Waiting | Health::Failing(_) => {}
        }
    }

    fn not_well_on_probation(&mut self, now: Time, generation: Generation, reason: String, out: &mut Vec<Action>) {
        if self.standby().is_some() {
            self.roll_back(now, generation, reason, End::Term, out);
        } else {
            self.replace(now, generation, reason, out);
        }
    }

    /// The new generation has proven itself: its predecessor drains.
    fn commit(&mut self, now: Time, out: &mut Vec<Action>) {
        let Some((active, waiters)) = self.end_probation(out) else { return };
        // Without a probation nothing is proven, and a relay that says at once that it is unwell is an upgrade each time.
        if !self.settings.probation.is_zero() {
            self.backoff.proven();
        }
        if let Some(old) = self.standby() {
            self.drain(now, old, self.settings.drain_timeout, out);
        }
        out.push(info(format!("the upgrade to generation {active} is committed")));
        Self::reply(waiters, &Outcome::Done { active }, out);
        self.begin_queued(now, out);
    }

    pub(super) fn rollback_requested(&mut self, now: Time, waiter: Option<RequestId>, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Serving { active, upgrade: Some(Upgrade { stage: Stage::Probation { .. }, .. }) } => {
                if let Some(old) = self.standby() {
                    let reply = waiter.map(|to| Action::Reply { to, outcome: Outcome::Done { active: old } });
                    self.roll_back(now, active, "rolled back by request".to_owned(), End::Term, out);
                    out.extend(reply);
                } else {
                    deny(waiter, "rollback", Deny::NoProbation, out);
                }
            }
            Phase::Idle | Phase::First { .. } | Phase::Serving { .. } | Phase::Down { .. } => {
                deny(waiter, "rollback", Deny::NoProbation, out);
            }
            Phase::Stopping { .. } | Phase::Ended => deny(waiter, "rollback", Deny::Stopping, out),
            Phase::Leaving { .. } => deny(waiter, "rollback", Deny::Leaving, out),
        }
    }

    /// Back to the standby, while the new generation is still there: it is ended.
    pub(super) fn roll_back(&mut self, now: Time, failed: Generation, reason: String, how: End, out: &mut Vec<Action>) {
        let Some(old) = self.standby() else { return };
        let waiters = self.reactivate(now, old, out);
        self.end(now, failed, how, out);
        self.rolled_back(now, failed, reason, waiters, out);
    }

    /// Makes the standby active again. Returns who waits for the upgrade.
    pub(super) fn reactivate(&mut self, now: Time, old: Generation, out: &mut Vec<Action>) -> Vec<RequestId> {
        let waiters = self.end_probation(out).map(|(_, waiters)| waiters).unwrap_or_default();
        self.phase = Phase::Serving { active: old, upgrade: None };
        self.steer(out);
        self.activate(now, old, out);
        waiters
    }

    /// Tells everybody that the upgrade was undone, and goes on.
    pub(super) fn rolled_back(
        &mut self,
        now: Time,
        failed: Generation,
        reason: String,
        waiters: Vec<RequestId>,
        out: &mut Vec<Action>,
    ) {
        out.push(warn(format!("generation {failed} was rolled back: {reason}")));
        self.last_failure = Some(FailureView { generation: failed, reason: reason.clone(), status: None });
        Self::reply(waiters, &Outcome::RolledBack { generation: failed, reason }, out);
        self.begin_queued(now, out);
    }

    /// Ends the upgrade as failed although its generation stays active: there is nobody to go back to.
    pub(super) fn fail_probation(&mut self, now: Time, generation: Generation, reason: String, out: &mut Vec<Action>) {
        let Some((_, waiters)) = self.end_probation(out) else { return };
        let reason = format!("{reason} (it stays active: no older generation is left to go back to)");
        self.last_failure = Some(FailureView { generation, reason: reason.clone(), status: None });
        Self::reply(waiters, &Outcome::Failed { generation, reason }, out);
        self.begin_queued(now, out);
    }

    /// Takes the upgrade out of its probation, if there is one: the active generation and who waits.
    pub(super) fn end_probation(&mut self, out: &mut Vec<Action>) -> Option<(Generation, Vec<RequestId>)> {
        let probing = match *self.health()? {
            Health::Well | Health::Failing(_) => true,
            Health::Unprobed | Health::Waiting => false,
        };
        if probing {
            out.push(Action::StopProbe);
        }
        match &mut self.phase {
            Phase::Serving { active, upgrade } => upgrade.take().map(|upgrade| (*active, upgrade.waiters)),
            Phase::Idle
            | Phase::First { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => None,
        }
    }

    /// What the probes of the running probation say.
    fn health(&mut self) -> Option<&mut Health> {
        match &mut self.phase {
            Phase::Serving { upgrade: Some(Upgrade { stage: Stage::Probation { health, .. }, .. }), .. } => {
                Some(health)
            }
            Phase::Serving { .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => None,
        }
    }

    /// The next moment at which something of the upgrade itself is due.
    pub(super) fn upgrade_deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Serving { active, upgrade: Some(upgrade) } => match &upgrade.stage {
                Stage::Room | Stage::Starting { .. } => None,
                Stage::Checking { deadline, .. } => Some(*deadline),
                Stage::Probation { commit_at, give_up_at, health } => {
                    let verdict = match health {
                        Health::Unprobed | Health::Well => *commit_at,
                        Health::Waiting | Health::Failing(_) => *give_up_at,
                    };
                    let lost = self.children.get(active).and_then(|child| match child.channel {
                        Channel::Lost { exit_by, .. } if self.standby().is_some() => Some(exit_by),
                        Channel::Lost { .. } | Channel::Open | Channel::Garbled => None,
                    });
                    lost.into_iter().chain([verdict]).min()
                }
            },
            Phase::Down { respawn, .. } => match respawn.step {
                Attempt::Waiting { at } if self.can_respawn() => Some(at),
                Attempt::Waiting { .. } | Attempt::Running { .. } => None,
            },
            Phase::Serving { upgrade: None, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => None,
        }
    }
}
