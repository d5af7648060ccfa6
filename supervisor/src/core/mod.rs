//! The lifecycle as a plain state machine: no clock, socket, process, async or environment.
//!
//! `docs/design/lifecycle.md` has what happens in every state at every event, and the invariants.
//!
//! ```text
//!   idle ──► first ──► serving ◄──► down
//!              │          │          │      (from each of them)
//!              ▼          ▼          ▼
//!           stopping or leaving ──► ended
//! ```

mod backoff;
mod canonical;
mod child;
mod crash;
mod degraded;
pub mod event;
mod expire;
mod generation;
mod handoff;
mod heirs;
mod orders;
mod resume;
pub mod snapshot;
mod speaker;
mod stop;
mod time;
mod upgrade;

pub use canonical::Canonical;
pub use degraded::{Part, Survivor};
pub use event::{Action, Deny, Event, ExitStatus, Kill, Note, Outcome, RequestId, Settings, SpawnError, Steering};
pub use generation::{ACKNOWLEDGE, GRACE, MORE_TIME, START_LIMIT, STATS_TIMEOUT, STOP_TIMEOUT, STUCK};
pub use snapshot::Snapshot;
pub use time::Time;

use backoff::Backoff;
use generation::Child;
use heirs::Mourned;
use protocol::message::{Generation, Stats};
use serde::{Deserialize, Serialize};
use snapshot::FailureView;
use speaker::Audience;
use std::collections::BTreeMap;

/// The lifecycle of all generations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Core {
    settings: Settings,
    phase: Phase,
    /// The live ones: from `Spawn` until the process has been reaped.
    children: BTreeMap<Generation, Child>,
    /// Triggers that came while an upgrade was in flight.
    queued: Option<Queued>,
    backoff: Backoff,
    /// The number of the next generation.
    next: u32,
    /// The number of the next role message.
    seq: u64,
    /// Whether UDP_GRO is on.
    gro: bool,
    /// The steering that was ordered last.
    steering: Option<Steering>,
    /// When to order it again, because it failed.
    steer_again: Option<Time>,
    /// `Note::Serving` has been given.
    announced: bool,
    last_failure: Option<FailureView>,
    /// Those whose process has been reaped, until their clients have given up.
    mourned: BTreeMap<Generation, Mourned>,
    /// Who was told the counters of the others, and is told when they change.
    audience: Audience,
    /// The counters of those that have gone, added up.
    gone: Stats,
    /// It has ended for another supervisor to go on with this.
    left: Option<Left>,
}

impl Core {
    /// A lifecycle in which nothing has been started. `seed` decides the jitter of the respawn delays, nothing else.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            phase: Phase::Idle,
            children: BTreeMap::new(),
            queued: None,
            backoff: Backoff::new(seed),
            next: 1,
            seq: 1,
            gro: true,
            steering: None,
            steer_again: None,
            announced: false,
            last_failure: None,
            mourned: BTreeMap::new(),
            audience: Audience::default(),
            gone: Stats::default(),
            left: None,
        }
    }

    /// Takes in one fact and appends the orders that follow from it, in the order in which they are to be performed.
    ///
    /// Due deadlines are handled too, whatever the event. `now` never goes back.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        let before = out.len();
        self.take(now, event, out);
        self.expire(now, out);
        let ended = out.last().is_some_and(|action| matches!(action, Action::Exit { .. }));
        if out.len() > before && !ended {
            out.push(Action::Note(Note::Changed));
        }
    }

    fn take(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        let asks = matches!(event, Event::Upgrade { .. } | Event::Rollback { .. } | Event::Resume { .. });
        if self.phase == Phase::Ended && !asks {
            return;
        }
        match event {
            Event::Start => self.start(now, out),
            Event::Resume { upgrade } => self.resume(now, upgrade, out),
            Event::Upgrade { waiter, evict_oldest } => self.upgrade_requested(now, waiter, evict_oldest, out),
            Event::Rollback { waiter } => self.rollback_requested(now, waiter, out),
            Event::Stop => self.stop_requested(now, out),
            Event::Reload => self.reload_requested(out),
            Event::Leave { stored } => self.leave_requested(now, stored, out),
            Event::Checked { generation, result } => self.checked(now, generation, result, out),
            Event::Spawned { generation, pid } => self.spawned(now, generation, pid, out),
            Event::SpawnFailed { generation, error } => self.spawn_failed(now, generation, error, out),
            Event::Adopted { generation } => self.adopted(generation),
            Event::AdoptFailed { generation, error, status } => {
                self.adopt_failed(now, generation, error, status, out);
            }
            Event::Steered { active } => self.steered(now, active, out),
            Event::SteerFailed { active, error } => self.steer_failed(now, active, error, out),
            Event::Message { generation, message } => self.message(now, generation, message, out),
            Event::Garbage { generation, error } => self.garbage(now, generation, &error, out),
            Event::ChannelLost { generation, error } => self.channel_lost(now, generation, error, out),
            Event::Exited { generation, status } => self.exited(now, generation, status, out),
            Event::Probed { generation, result } => self.probed(now, generation, result, out),
            Event::Tick => {}
        }
    }
}

/// What the service as a whole is doing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Phase {
    /// Nothing has been started.
    Idle,
    /// The first generation is on its way; nothing was ever active.
    First { generation: Generation },
    /// One is active.
    Serving { active: Generation, upgrade: Option<Upgrade> },
    /// The active one died, and there was no standby.
    Down { holder: Holder, respawn: Respawn },
    /// All generations are ending.
    Stopping { verdict: Verdict },
    /// Only those that are starting or ending have to go.
    Leaving { left: Left },
    /// `Exit` has been ordered.
    Ended,
}

/// What a leaving supervisor leaves to the next one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Left {
    /// One is active, or nothing was ever active.
    Service,
    /// The active one died.
    Down { holder: Holder },
}

/// Who gets the new handshakes while no generation is properly active.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Holder {
    /// They wait in the sockets of this dead one.
    Dead {
        generation: Generation,
        /// From then on, what waits there is too old to be served.
        flush_at: Time,
    },
    /// A draining generation as the last resort.
    StandIn { generation: Generation },
    /// Nobody: the numbers were used up, and there is a new boot id.
    Nobody,
}

/// The attempts to get a successor for an active generation that died.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Respawn {
    /// How many in a row ended before they were ready.
    failed: u32,
    step: Attempt,
    /// Who waits for the outcome of this attempt.
    waiters: Vec<RequestId>,
}

/// One such attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Attempt {
    /// It begins then, or when what the one before left behind has gone.
    Waiting { at: Time },
    /// It is starting or ready.
    Running { generation: Generation },
}

impl Respawn {
    fn running(&self) -> Option<Generation> {
        match self.step {
            Attempt::Running { generation } => Some(generation),
            Attempt::Waiting { .. } => None,
        }
    }
}

/// An upgrade in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Upgrade {
    waiters: Vec<RequestId>,
    stage: Stage,
}

/// How far an upgrade is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Stage {
    /// As many as may live do, one of which is ending.
    Room,
    /// `--check-command` runs.
    Checking { generation: Generation, deadline: Time },
    /// The new generation is starting or ready.
    Starting { generation: Generation },
    /// The new generation is active.
    Probation {
        commit_at: Time,
        /// Without a successful last probe there is no commit; from then on, a rollback.
        give_up_at: Time,
        health: Health,
    },
}

impl Upgrade {
    /// The new generation, while it is starting or ready.
    fn starting(&self) -> Option<Generation> {
        match self.stage {
            Stage::Starting { generation } => Some(generation),
            Stage::Room | Stage::Checking { .. } | Stage::Probation { .. } => None,
        }
    }
}

/// What the health probes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Health {
    /// There are none.
    Unprobed,
    /// They begin when the standby has stopped accepting.
    Waiting,
    /// The last one succeeded.
    Well,
    /// As many as this failed in a row, or none has ended yet.
    Failing(u8),
}

/// Triggers that came while an upgrade was in flight: one more upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Queued {
    waiters: Vec<RequestId>,
    evict_oldest: bool,
}

/// The exit status of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Verdict {
    /// This.
    Status(u8),
    /// That of the first generation, if it ends by itself.
    Own { first: Generation },
}
