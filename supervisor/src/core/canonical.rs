//! One representative of all lifecycles that go on alike, for who explores them.

use super::crash::LAST_RESORT;
use super::event::RequestId;
use super::generation::{Channel, Child, Escalation, State};
use super::time::Time;
use super::{Attempt, Core, Holder, Left, Phase, Stage, Upgrade, Verdict};
use protocol::message::{Generation, Stats};
use std::collections::{BTreeMap, BTreeSet};

/// A lifecycle whose numbers and moments say no more than their order and distance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Canonical {
    /// It, as if the present were the driver's epoch.
    pub core: Core,
    /// How its generations are called now: those it knows, from 1 without gaps, in the old order.
    pub generations: BTreeMap<Generation, Generation>,
    /// How the role messages are called now whose acknowledgement it waits for.
    pub roles: BTreeMap<u64, u64>,
    /// How the requests are called now that are not answered yet.
    pub requests: BTreeMap<RequestId, RequestId>,
}

impl Core {
    /// Another lifecycle that does the same from now on at the same events, where generations, role messages and
    /// requests are called by their new names, except that it knows of no dead (they decide nothing): no number, moment or text is left in it that only tells of the past, and the jitter
    /// begins anew. So the endlessly many states of a long life become finitely many.
    #[must_use]
    pub fn canonical(&self, now: Time) -> Canonical {
        let generations = self.mentioned().into_iter().zip((1..).map(Generation)).collect::<BTreeMap<_, _>>();
        let pending = self.children.values().filter_map(|child| child.pending.map(|pending| pending.seq));
        let roles = pending.collect::<BTreeSet<_>>().into_iter().zip(1..).collect::<BTreeMap<_, _>>();
        let mut core = self.clone();
        core.rename(&generations, &roles);
        let waiting = core.waiters().map(|request| *request).collect::<BTreeSet<_>>();
        let requests = waiting.into_iter().zip((1..).map(RequestId)).collect::<BTreeMap<_, _>>();
        for request in core.waiters() {
            if let Some(new) = requests.get(request) {
                *request = *new;
            }
        }
        core.rebase(now);
        core.forget();
        Canonical { core, generations, roles, requests }
    }

    /// All who wait for an answer.
    fn waiters(&mut self) -> impl Iterator<Item = &mut RequestId> {
        let in_flight = match &mut self.phase {
            Phase::Serving { upgrade, .. } => upgrade.as_mut().map(|upgrade| &mut upgrade.waiters),
            Phase::Down { respawn, .. } => Some(&mut respawn.waiters),
            Phase::Idle | Phase::First { .. } | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => None,
        };
        let queued = self.queued.as_mut().map(|queued| &mut queued.waiters);
        in_flight.into_iter().chain(queued).flatten()
    }

    /// Every generation whose number is somewhere in it.
    fn mentioned(&self) -> BTreeSet<Generation> {
        let mut all: BTreeSet<_> = self.children.keys().copied().collect();
        all.extend(self.children.values().filter_map(|child| child.takes_over));
        all.extend(self.audience.clone().each().map(|generation| *generation));
        if let Some(steering) = &self.steering {
            all.extend(&steering.live);
            all.insert(steering.active);
            all.extend(steering.canary.map(|(canary, _)| canary));
        }
        match &self.phase {
            Phase::First { generation } => {
                all.insert(*generation);
            }
            Phase::Serving { active, upgrade } => {
                all.insert(*active);
                match upgrade.as_ref().map(|upgrade| &upgrade.stage) {
                    Some(Stage::Checking { generation, .. } | Stage::Starting { generation }) => {
                        all.insert(*generation);
                    }
                    Some(Stage::Room | Stage::Probation { .. }) | None => {}
                }
            }
            Phase::Down { holder, respawn } => {
                match holder {
                    Holder::Dead { generation, .. } | Holder::StandIn { generation } => {
                        all.insert(*generation);
                    }
                    Holder::Nobody => {}
                }
                all.extend(respawn.running());
            }
            Phase::Stopping { verdict: Verdict::Own { first } } => {
                all.insert(*first);
            }
            Phase::Idle | Phase::Stopping { verdict: Verdict::Status(_) } | Phase::Leaving { .. } | Phase::Ended => {}
        }
        all
    }

    fn rename(&mut self, generations: &BTreeMap<Generation, Generation>, roles: &BTreeMap<u64, u64>) {
        let rename = |generation: &mut Generation| {
            if let Some(new) = generations.get(generation) {
                *generation = *new;
            }
        };
        self.children = std::mem::take(&mut self.children)
            .into_iter()
            .map(|(mut generation, mut child)| {
                rename(&mut generation);
                child.takes_over.iter_mut().for_each(rename);
                if let Some(pending) = &mut child.pending
                    && let Some(new) = roles.get(&pending.seq)
                {
                    pending.seq = *new;
                }
                (generation, child)
            })
            .collect();
        self.audience.each().for_each(rename);
        if let Some(steering) = &mut self.steering {
            steering.live.iter_mut().for_each(rename);
            rename(&mut steering.active);
            if let Some((canary, _)) = &mut steering.canary {
                rename(canary);
            }
        }
        match &mut self.phase {
            Phase::First { generation } => rename(generation),
            Phase::Serving { active, upgrade } => {
                rename(active);
                match upgrade.as_mut().map(|upgrade| &mut upgrade.stage) {
                    Some(Stage::Checking { generation, .. } | Stage::Starting { generation }) => rename(generation),
                    Some(Stage::Room | Stage::Probation { .. }) | None => {}
                }
            }
            Phase::Down { holder, respawn } => {
                match holder {
                    Holder::Dead { generation, .. } | Holder::StandIn { generation } => rename(generation),
                    Holder::Nobody => {}
                }
                match &mut respawn.step {
                    Attempt::Running { generation } => rename(generation),
                    Attempt::Waiting { .. } => {}
                }
            }
            Phase::Stopping { verdict: Verdict::Own { first } } => rename(first),
            Phase::Idle | Phase::Stopping { verdict: Verdict::Status(_) } | Phase::Leaving { .. } | Phase::Ended => {}
        }
        self.next = u32::try_from(generations.len()).map_or(u32::MAX, |count| count.saturating_add(1));
        self.seq = u64::try_from(roles.len()).map_or(u64::MAX, |count| count.saturating_add(1));
    }

    fn rebase(&mut self, now: Time) {
        let rebase = |moment: &mut Time| *moment = moment.rebased(now);
        self.children.values_mut().for_each(|child| child.rebase(now));
        self.steer_again.iter_mut().for_each(rebase);
        self.backoff.rebase(now);
        match &mut self.phase {
            Phase::Serving { upgrade: Some(Upgrade { stage, .. }), .. } => match stage {
                Stage::Checking { deadline, .. } => rebase(deadline),
                Stage::Probation { commit_at, give_up_at, .. } => {
                    rebase(commit_at);
                    rebase(give_up_at);
                }
                Stage::Room | Stage::Starting { .. } => {}
            },
            Phase::Down { holder, respawn } => {
                match holder {
                    Holder::Dead { flush_at, .. } => rebase(flush_at),
                    Holder::StandIn { .. } | Holder::Nobody => {}
                }
                match &mut respawn.step {
                    Attempt::Waiting { at } => rebase(at),
                    Attempt::Running { .. } => {}
                }
            }
            Phase::Serving { upgrade: None, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => {}
        }
    }

    /// Drops what no decision depends on.
    fn forget(&mut self) {
        self.last_failure = None;
        self.gone = Stats::default();
        self.left = None;
        self.mourned.clear();
        match &mut self.phase {
            Phase::Down { respawn, .. } => respawn.failed = respawn.failed.min(LAST_RESORT),
            // For the next supervisor alone.
            Phase::Leaving { left } => *left = Left::Service,
            Phase::Idle | Phase::First { .. } | Phase::Serving { .. } | Phase::Stopping { .. } | Phase::Ended => {}
        }
        for child in self.children.values_mut() {
            child.pid = child.pid.map(|_| 0);
            child.stats = Stats::default();
            child.heir_of.clear();
            if let Some(about) = &mut child.about {
                about.idle_timeout = None;
            }
            child.unhealthy = child.unhealthy.as_ref().map(|_| String::new());
            match &mut child.channel {
                Channel::Lost { error, .. } => error.clear(),
                Channel::Open | Channel::Garbled => {}
            }
        }
    }
}

impl Child {
    fn rebase(&mut self, now: Time) {
        let rebase = |moment: &mut Time| *moment = moment.rebased(now);
        match &mut self.state {
            State::Starting { deadline, limit, .. } => {
                rebase(deadline);
                rebase(limit);
            }
            State::Draining { kill_at, .. } => rebase(kill_at),
            State::Ending { escalation, .. } => match escalation {
                Escalation::Expected { kill_at: due }
                | Escalation::Terminated { kill_at: due }
                | Escalation::Killed { stuck_at: due } => rebase(due),
                Escalation::Stuck => {}
            },
            State::Ready | State::Active | State::Standby => {}
        }
        self.stats_due.iter_mut().for_each(rebase);
        if let Some(pending) = &mut self.pending {
            rebase(&mut pending.deadline);
        }
        match &mut self.channel {
            Channel::Lost { exit_by, .. } => rebase(exit_by),
            Channel::Open | Channel::Garbled => {}
        }
    }
}
