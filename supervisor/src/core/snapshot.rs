//! What `status` and the service manager are shown.

use super::event::ExitStatus;
use super::generation::{Channel, Child, Escalation, State};
use super::time::Time;
use super::{Attempt, Core, Health, Holder, Phase, Stage};
use protocol::message::{Generation, Stats};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The whole lifecycle at one moment, for people and for `status --json`. Durations are what is left from that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What the service as a whole is doing.
    pub phase: PhaseView,
    /// Who gets the new handshakes; while `phase` is `Failed` without a stand-in, the dead one whose sockets hold them.
    pub active: Option<Generation>,
    /// The live generations, oldest first.
    pub generations: Vec<GenerationView>,
    /// The upgrade (or first start) in flight.
    pub upgrade: Option<UpgradeView>,
    /// Another upgrade follows the one in flight.
    pub queued: bool,
    /// The last generation that failed since the start, and why.
    pub last_failure: Option<FailureView>,
    /// Whether UDP_GRO is on.
    pub gro: bool,
}

/// What the service as a whole is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseView {
    /// Nothing has been started yet.
    Idle,
    /// The first generation is getting ready.
    Starting,
    /// A generation is active.
    Serving,
    /// The active generation crashed and nobody could take over: new handshakes wait, or a draining generation stands
    /// in.
    Failed {
        /// Respawns since then that ended before they were ready.
        attempts: u32,
        /// Until the next respawn; `None` while one is running.
        next: Option<Duration>,
        /// The draining generation that serves as the last resort.
        stand_in: Option<Generation>,
    },
    /// All generations drain.
    Stopping,
    /// The supervisor ends as soon as no unready generation is left; the others stay.
    Leaving,
    /// It has ended.
    Ended,
}

/// One live generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationView {
    /// Its number.
    pub generation: Generation,
    /// Its state.
    pub state: StateView,
    /// Its process id, once it runs.
    pub pid: Option<u32>,
    /// `program` of its `hello`.
    pub program: Option<String>,
    /// `version` of its `hello`.
    pub version: Option<String>,
    /// Its counters as last reported.
    pub stats: Stats,
    /// Starting: until it counts as failed. Draining: until its deadline (zero in the grace after it). Ending: until
    /// SIGKILL.
    pub left: Option<Duration>,
    /// What it said last when it was not well.
    pub unhealthy: Option<String>,
    /// Its channel is closed or not read: it can be told nothing.
    pub unreachable: bool,
}

/// The state of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateView {
    /// Spawned, not ready.
    Starting,
    /// Ready, the switch to it is under way.
    Ready,
    /// It gets the new handshakes.
    Active,
    /// It lost the active role, keeps its sessions and can be active again at once.
    Standby,
    /// It was told to let its sessions go.
    Draining,
    /// It failed or was evicted, and is being ended.
    Ending,
}

impl StateView {
    /// The word for it, as in `status --json`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Standby => "standby",
            Self::Draining => "draining",
            Self::Ending => "ending",
        }
    }
}

/// The upgrade in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradeView {
    /// The new generation, once it has a number.
    pub generation: Option<Generation>,
    /// How far it is.
    pub stage: StageView,
    /// Until this stage ends by itself.
    pub left: Option<Duration>,
}

/// How far an upgrade is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageView {
    /// It waits until a generation that is being ended has gone.
    MakingRoom,
    /// `--check-command` runs.
    Checking,
    /// The new generation is starting.
    Starting,
    /// The new generation is ready; the steering program is being replaced.
    Switching,
    /// The new generation is active, the old one on standby.
    Probation,
}

/// A generation that failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FailureView {
    /// Which.
    pub generation: Generation,
    /// Why, in one line.
    pub reason: String,
    /// How its process ended, if that is what it failed by.
    pub status: Option<ExitStatus>,
}

impl Core {
    /// What there is to show.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> Snapshot {
        Snapshot {
            phase: self.phase_view(now),
            active: match &self.phase {
                Phase::Serving { active, .. } => Some(*active),
                Phase::Down { holder, .. } => match holder {
                    Holder::Dead { generation, .. } | Holder::StandIn { generation } => Some(*generation),
                    Holder::Nobody => None,
                },
                Phase::Leaving { .. } => {
                    self.children.iter().find(|(_, child)| child.state == State::Active).map(|(active, _)| *active)
                }
                Phase::Idle | Phase::First { .. } | Phase::Stopping { .. } | Phase::Ended => None,
            },
            generations: self.children.iter().map(|(generation, child)| child.view(*generation, now)).collect(),
            upgrade: self.upgrade_view(now),
            queued: self.queued.is_some(),
            last_failure: self.last_failure.clone(),
            gro: self.gro,
        }
    }

    fn phase_view(&self, now: Time) -> PhaseView {
        match &self.phase {
            Phase::Idle => PhaseView::Idle,
            Phase::First { .. } => PhaseView::Starting,
            Phase::Serving { .. } => PhaseView::Serving,
            Phase::Down { holder, respawn } => PhaseView::Failed {
                attempts: respawn.failed,
                next: match respawn.step {
                    Attempt::Waiting { at } => Some(now.until(at)),
                    Attempt::Running { .. } => None,
                },
                stand_in: match holder {
                    Holder::StandIn { generation } => Some(*generation),
                    Holder::Dead { .. } | Holder::Nobody => None,
                },
            },
            Phase::Stopping { .. } => PhaseView::Stopping,
            Phase::Leaving { .. } => PhaseView::Leaving,
            Phase::Ended => PhaseView::Ended,
        }
    }

    fn upgrade_view(&self, now: Time) -> Option<UpgradeView> {
        let starting = |generation: Generation| {
            let child = self.children.get(&generation);
            let ready = child.is_some_and(|child| child.state == State::Ready);
            UpgradeView {
                generation: Some(generation),
                stage: if ready { StageView::Switching } else { StageView::Starting },
                left: child.and_then(Child::deadline).map(|deadline| now.until(deadline)),
            }
        };
        match &self.phase {
            Phase::First { generation } => Some(starting(*generation)),
            Phase::Serving { active, upgrade } => upgrade.as_ref().map(|upgrade| match &upgrade.stage {
                Stage::Room => UpgradeView { generation: None, stage: StageView::MakingRoom, left: None },
                Stage::Checking { generation, deadline } => UpgradeView {
                    generation: Some(*generation),
                    stage: StageView::Checking,
                    left: Some(now.until(*deadline)),
                },
                Stage::Starting { generation } => starting(*generation),
                Stage::Probation { commit_at, give_up_at, health } => UpgradeView {
                    generation: Some(*active),
                    stage: StageView::Probation,
                    left: Some(now.until(match health {
                        Health::Unprobed | Health::Well => *commit_at,
                        Health::Waiting | Health::Failing(_) => *give_up_at,
                    })),
                },
            }),
            Phase::Down { respawn, .. } => respawn.running().map(starting),
            Phase::Idle | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Ended => None,
        }
    }
}

impl Child {
    fn view(&self, generation: Generation, now: Time) -> GenerationView {
        let until = |moment: &Time| Some(now.until(*moment));
        let (state, left) = match &self.state {
            State::Starting { deadline, .. } => (StateView::Starting, until(deadline)),
            State::Ready => (StateView::Ready, None),
            State::Active => (StateView::Active, None),
            State::Standby => (StateView::Standby, None),
            State::Draining { .. } => (StateView::Draining, self.drain_left(now)),
            State::Ending { escalation, .. } => match escalation {
                Escalation::Expected { kill_at } | Escalation::Terminated { kill_at } => {
                    (StateView::Ending, until(kill_at))
                }
                Escalation::Killed { .. } | Escalation::Stuck => (StateView::Ending, None),
            },
        };
        GenerationView {
            generation,
            state,
            pid: self.pid,
            program: self.about.as_ref().map(|about| about.program.clone()),
            version: self.about.as_ref().map(|about| about.version.clone()),
            stats: self.stats.clone(),
            left,
            unhealthy: self.unhealthy.clone(),
            unreachable: match self.channel {
                Channel::Lost { .. } => true,
                Channel::Open | Channel::Garbled => false,
            },
        }
    }
}
