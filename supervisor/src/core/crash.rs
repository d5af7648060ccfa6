//! Ends of processes: what each means, and how a crashed active generation is replaced.

use super::event::{Action, Deny, ExitStatus, Outcome, RequestId};
use super::generation::{Escalation, Role, State, describe};
use super::orders::{info, warn};
use super::snapshot::FailureView;
use super::time::Time;
use super::upgrade::Failure;
use super::{Attempt, Core, Holder, Left, Phase, Respawn, Stage, Upgrade, Verdict};
use protocol::cid::MAX_GENERATION;
use protocol::exit;
use protocol::message::Generation;
use std::time::Duration;

/// Packets that waited longer are not served: their clients have gone on, and a late answer would reach nobody.
const FLUSH_AFTER: Duration = Duration::from_secs(3);
/// So many respawns in a row that end before they are ready, and a draining generation has to stand in.
pub(super) const LAST_RESORT: u32 = 3;

impl Core {
    pub(super) fn exited(&mut self, now: Time, generation: Generation, status: ExitStatus, out: &mut Vec<Action>) {
        let candidate = self.candidate() == Some(generation);
        let Some(child) = self.children.remove(&generation) else { return };
        self.mourn(now, generation, &child, status, out);
        self.absorb(generation, &child, out);
        let held = match child.state {
            State::Starting { .. } | State::Ready => {
                if candidate {
                    let reason = format!("{} before it was ready", describe(status));
                    let verdict = Verdict::Status(own_status(status));
                    self.candidate_failed(now, generation, Failure { reason, status: Some(status), verdict }, out);
                }
                false
            }
            State::Active => self.active_exited(now, generation, status, out),
            State::Standby | State::Draining { .. } => {
                out.push(info(format!("generation {generation} {}", describe(status))));
                false
            }
            State::Ending { escalation, .. } => {
                out.push(info(format!("generation {generation} {}", describe(status))));
                self.settle_verdict(generation, escalation, status);
                false
            }
        };
        self.steer(out);
        if !held {
            out.push(Action::Retire { generation });
        }
    }

    /// Says whether its sockets are to be held for a successor.
    fn active_exited(&mut self, now: Time, generation: Generation, status: ExitStatus, out: &mut Vec<Action>) -> bool {
        let reason = describe(status);
        match &mut self.phase {
            Phase::Serving { .. } => {
                if let Some(old) = self.standby() {
                    let waiters = self.reactivate(now, old, out);
                    self.rolled_back(now, generation, format!("it {reason} in its probation"), waiters, out);
                    return false;
                }
                self.last_failure = Some(FailureView { generation, reason: reason.clone(), status: Some(status) });
                if status == ExitStatus::Code(0) {
                    out.push(info(format!("active generation {generation} {reason} unasked: the service stops")));
                    self.stop_all(now, out);
                    return false;
                }
                out.push(warn(format!("active generation {generation} {reason}")));
                self.go_down(now, generation, reason, out);
                true
            }
            Phase::Down { holder, .. } => {
                out.push(warn(format!("stand-in generation {generation} {reason}")));
                *holder = Holder::Dead { generation, flush_at: now.after(FLUSH_AFTER) };
                self.stand_in(now, out)
            }
            Phase::Leaving { left } => {
                out.push(warn(format!("active generation {generation} {reason}")));
                if status == ExitStatus::Code(0) {
                    self.stop_all(now, out);
                    return false;
                }
                *left = Left::Down { holder: Holder::Dead { generation, flush_at: now.after(FLUSH_AFTER) } };
                true
            }
            Phase::Idle | Phase::First { .. } | Phase::Stopping { .. } | Phase::Ended => false,
        }
    }

    /// Nobody is active. What an upgrade had begun becomes the first attempt at a successor.
    fn go_down(&mut self, now: Time, dead: Generation, reason: String, out: &mut Vec<Action>) {
        if let Some((_, waiters)) = self.end_probation(out) {
            let reason = format!("it {reason}");
            Self::reply(waiters, &Outcome::Failed { generation: dead, reason }, out);
        }
        let delay = self.backoff.failed(now);
        let upgrade = match &mut self.phase {
            Phase::Serving { upgrade, .. } => upgrade.take(),
            Phase::Idle
            | Phase::First { .. }
            | Phase::Down { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => None,
        };
        let (step, waiters) = match upgrade {
            Some(Upgrade { waiters, stage: Stage::Starting { generation } }) => {
                (Attempt::Running { generation }, waiters)
            }
            Some(Upgrade { waiters, stage: Stage::Checking { generation, .. } }) => {
                out.push(Action::StopCheck { generation });
                (Attempt::Waiting { at: now }, waiters)
            }
            Some(Upgrade { waiters, stage: Stage::Room | Stage::Probation { .. } }) => {
                (Attempt::Waiting { at: now }, waiters)
            }
            None => (Attempt::Waiting { at: now.after(delay) }, Vec::new()),
        };
        let holder = Holder::Dead { generation: dead, flush_at: now.after(FLUSH_AFTER) };
        self.phase = Phase::Down { holder, respawn: Respawn { failed: 0, step, waiters } };
        self.respawn_for_queued(now);
    }

    /// A folded upgrade makes the next attempt at once.
    fn respawn_for_queued(&mut self, now: Time) {
        match &mut self.phase {
            Phase::Down { respawn: Respawn { step: Attempt::Waiting { at }, waiters, .. }, .. } => {
                if let Some(queued) = self.queued.take() {
                    *at = now;
                    waiters.extend(queued.waiters);
                }
            }
            Phase::Down { respawn: Respawn { step: Attempt::Running { .. }, .. }, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
    }

    /// Whether nothing stands in the way of an attempt: not the number of live ones, nor a failed successor that still
    /// has the sockets of the dead one.
    pub(super) fn can_respawn(&self) -> bool {
        self.has_room() && self.children.values().all(|child| !(child.is_about_to_end() && child.takes_over.is_some()))
    }

    /// Begins the attempt that is due.
    pub(super) fn respawn(&mut self, now: Time, out: &mut Vec<Action>) {
        let can_respawn = self.can_respawn();
        let used_up = self.next > MAX_GENERATION;
        match &mut self.phase {
            Phase::Down { respawn: Respawn { step: Attempt::Waiting { at }, .. }, .. } if *at <= now && can_respawn => {
            }
            Phase::Down { .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => return,
        }
        if used_up && !self.children.is_empty() {
            self.no_number_left(now, out);
            return;
        }
        if used_up {
            self.rekey(out);
        }
        let generation = self.take_number();
        match &mut self.phase {
            Phase::Down { respawn, .. } => respawn.step = Attempt::Running { generation },
            Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
        self.spawn(now, generation, out);
    }

    fn no_number_left(&mut self, now: Time, out: &mut Vec<Action>) {
        let waiters = match &mut self.phase {
            Phase::Down { respawn, .. } => std::mem::take(&mut respawn.waiters),
            Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => Vec::new(),
        };
        out.push(warn("no respawn: the generation numbers are used up while others live".to_owned()));
        Self::reply(waiters, &Outcome::Denied(Deny::OutOfGenerations), out);
        self.respawn_failed(now, out);
    }

    /// Nothing lives, so nothing is lost by new keys and numbers from 1 on.
    fn rekey(&mut self, out: &mut Vec<Action>) {
        self.retire_held(out);
        self.forget_all_mourned(out);
        self.steering = None;
        self.steer_again = None;
        self.next = 1;
        out.push(Action::Rekey);
    }

    /// Gives up the sockets that were held for a successor.
    pub(super) fn retire_held(&mut self, out: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Down { holder: holder @ Holder::Dead { .. }, .. } => {
                if let Holder::Dead { generation, .. } = std::mem::replace(holder, Holder::Nobody) {
                    out.push(Action::Retire { generation });
                }
            }
            Phase::Down { holder: Holder::StandIn { .. } | Holder::Nobody, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
    }

    /// An attempt ended before it was ready: the next one follows, and after three a draining generation stands in.
    pub(super) fn respawn_failed(&mut self, now: Time, out: &mut Vec<Action>) {
        let delay = self.backoff.failed(now);
        let Phase::Down { holder, respawn } = &mut self.phase else { return };
        respawn.failed = respawn.failed.saturating_add(1);
        respawn.step = Attempt::Waiting { at: now.after(delay) };
        let (dead, somebody_serves) = match holder {
            Holder::Dead { generation, .. } => (Some(*generation), false),
            Holder::StandIn { .. } => (None, true),
            Holder::Nobody => (None, false),
        };
        self.respawn_for_queued(now);
        let held = somebody_serves || self.stand_in(now, out);
        self.steer(out);
        out.extend(dead.filter(|_| !held).map(|generation| Action::Retire { generation }));
    }

    /// Lets the youngest draining generation serve, if it has come to that. Says whether the dead one's sockets are to
    /// be held still.
    fn stand_in(&mut self, now: Time, out: &mut Vec<Action>) -> bool {
        let youngest = self.children.iter().rev().find(|(_, child)| child.can_stand_in());
        let Some(generation) = youngest.map(|(generation, _)| *generation) else { return true };
        let Phase::Down { holder, respawn } = &mut self.phase else { return true };
        if respawn.failed < LAST_RESORT {
            return true;
        }
        *holder = Holder::StandIn { generation };
        if let Some(child) = self.children.get_mut(&generation) {
            child.state = State::Active;
        }
        out.push(warn(format!("draining generation {generation} stands in as the last resort")));
        self.assign(now, generation, Role::Undrain, out);
        false
    }

    /// Settles the exit status when the first generation has ended after it failed.
    fn settle_verdict(&mut self, generation: Generation, escalation: Escalation, status: ExitStatus) {
        match &mut self.phase {
            Phase::Stopping { verdict } => match *verdict {
                Verdict::Own { first } if first == generation => {
                    *verdict = Verdict::Status(match escalation {
                        Escalation::Expected { .. } => own_status(status),
                        Escalation::Terminated { .. } | Escalation::Killed { .. } | Escalation::Stuck => {
                            exit::NOT_READY
                        }
                    });
                }
                Verdict::Own { .. } | Verdict::Status(_) => {}
            },
            Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Down { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
    }

    /// Who waits for the upgrade or respawn in flight and for the one after it; they don't any more.
    pub(super) fn take_waiters(&mut self) -> Vec<RequestId> {
        let mut waiters = match &mut self.phase {
            Phase::Serving { upgrade, .. } => upgrade.take().map(|upgrade| upgrade.waiters).unwrap_or_default(),
            Phase::Down { respawn, .. } => std::mem::take(&mut respawn.waiters),
            Phase::Idle | Phase::First { .. } | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => {
                Vec::new()
            }
        };
        waiters.extend(self.queued.take().unwrap_or_default().waiters);
        waiters
    }
}

/// The exit status of the supervisor when its first generation ended like this. It never served, so 0 would be a lie.
fn own_status(status: ExitStatus) -> u8 {
    match status {
        ExitStatus::Code(0) => exit::NOT_READY,
        ExitStatus::Code(code) => code,
        ExitStatus::Signal(signal) => signal.saturating_add(128),
        ExitStatus::Unknown | ExitStatus::Lost => exit::FAILURE,
    }
}
