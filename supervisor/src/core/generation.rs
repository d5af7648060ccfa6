//! One live generation: its state, and what is known about its process.

use super::event::ExitStatus;
use super::time::Time;
use protocol::message::{Generation, Stats};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long after SIGTERM, a deadline or `failed` the process group gets SIGKILL.
pub const GRACE: Duration = Duration::from_secs(2);
/// How long a child has to acknowledge a role, and to exit after its channel was lost.
pub const ACKNOWLEDGE: Duration = Duration::from_secs(1);
/// The most that one `starting` adds to the time from now on.
pub const MORE_TIME: Duration = Duration::from_secs(600);
/// The most that all `starting` add up to, from spawn (never less than the ready timeout): every upgrade ends.
pub const START_LIMIT: Duration = Duration::from_secs(3600);
/// A child that has sent `stats` before and is silent for so long is not well.
pub const STATS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process may take to end after SIGKILL before nothing waits for it any more (it hangs in the kernel).
pub const STUCK: Duration = Duration::from_secs(5);
/// The drain timeout at a stop, for a child that named none.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A generation from its spawn until its process has been reaped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Child {
    pub(super) state: State,
    /// Known from `Spawned` on.
    pub(super) pid: Option<u32>,
    /// Known from `hello` on.
    pub(super) about: Option<About>,
    pub(super) channel: Channel,
    /// The last role it was given, until that is acknowledged or overdue.
    pub(super) pending: Option<Pending>,
    pub(super) stats: Stats,
    /// By when it has to send `stats` again; `None` for a child that never did, or that is late already.
    pub(super) stats_due: Option<Time>,
    /// What it said last about not being well.
    pub(super) unhealthy: Option<String>,
    /// The dead generation whose members it was offered.
    pub(super) takes_over: Option<Generation>,
    /// The dead generations that it was told to answer for.
    pub(super) heir_of: BTreeSet<Generation>,
}

impl Child {
    /// One that has been ordered now.
    pub(super) fn new(now: Time, ready_timeout: Duration) -> Self {
        let limit = now.after(START_LIMIT.max(ready_timeout));
        Self {
            state: State::Starting { step: Step::Spawning, deadline: now.after(ready_timeout), limit },
            pid: None,
            about: None,
            channel: Channel::Open,
            pending: None,
            stats: Stats::default(),
            stats_due: None,
            unhealthy: None,
            takes_over: None,
            heir_of: BTreeSet::new(),
        }
    }

    /// Whether its sockets get packets for its own connections: it was switched to at some time.
    pub(super) fn serves(&self) -> bool {
        match self.state {
            State::Starting { .. } => false,
            State::Ready | State::Active | State::Standby | State::Draining { .. } => true,
            State::Ending { served, .. } => served,
        }
    }

    /// Whether it may still answer on stream listeners, and thereby for the node: it is active, or has not said yet that it
    /// has stopped.
    pub(super) fn may_answer(&self) -> bool {
        match self.state {
            State::Starting { .. } | State::Ready => false,
            State::Active => true,
            State::Standby | State::Draining { .. } => match self.pending.map(|pending| pending.role) {
                Some(Role::Standby | Role::Drain { .. }) => true,
                Some(Role::Activate | Role::Undrain) | None => false,
            },
            State::Ending { served, .. } => served,
        }
    }

    /// Whether sockets have been on their way to it, so that clients may know it.
    pub(super) fn had_sockets(&self) -> bool {
        match &self.state {
            State::Starting { step, .. } => match step {
                Step::Spawning | Step::Greeting => false,
                Step::Adopting | Step::Adopted => true,
            },
            State::Ready | State::Active | State::Standby | State::Draining { .. } => true,
            // One whose `hello` was accepted got some before it failed.
            State::Ending { served, .. } => *served || self.about.is_some(),
        }
    }

    /// Whether it has its sockets and is not being ended, so that roles and news concern it.
    pub(super) fn is_adopted(&self) -> bool {
        match &self.state {
            State::Starting { step, .. } => match step {
                Step::Spawning | Step::Greeting | Step::Adopting => false,
                Step::Adopted => true,
            },
            State::Ready | State::Active | State::Standby | State::Draining { .. } => true,
            State::Ending { .. } => false,
        }
    }

    /// Whether messages reach it.
    pub(super) fn can_be_told(&self) -> bool {
        match self.channel {
            Channel::Open | Channel::Garbled => true,
            Channel::Lost { .. } => false,
        }
    }

    /// Whether it serves, and can be told to peer with another one.
    pub(super) fn can_be_peered(&self) -> bool {
        self.can_be_told() && self.serves() && !self.is_ending()
    }

    /// Whether it is being ended.
    pub(super) fn is_ending(&self) -> bool {
        match self.state {
            State::Ending { .. } => true,
            State::Starting { .. } | State::Ready | State::Active | State::Standby | State::Draining { .. } => false,
        }
    }

    /// Whether it is being ended and can be expected to end soon.
    pub(super) fn is_about_to_end(&self) -> bool {
        match &self.state {
            State::Ending { escalation, .. } => match escalation {
                Escalation::Expected { .. } | Escalation::Terminated { .. } | Escalation::Killed { .. } => true,
                Escalation::Stuck => false,
            },
            State::Starting { .. } | State::Ready | State::Active | State::Standby | State::Draining { .. } => false,
        }
    }

    /// Whether not even SIGKILL ends it.
    pub(super) fn is_stuck(&self) -> bool {
        match self.state {
            State::Ending { escalation, .. } => escalation == Escalation::Stuck,
            State::Starting { .. } | State::Ready | State::Active | State::Standby | State::Draining { .. } => false,
        }
    }

    /// Whether it can be told to accept sessions again: it drains by a message and can be told things.
    pub(super) fn can_stand_in(&self) -> bool {
        match self.state {
            State::Draining { asked: Asked::Message, .. } => self.channel == Channel::Open,
            State::Draining { asked: Asked::Term, .. }
            | State::Starting { .. }
            | State::Ready
            | State::Active
            | State::Standby
            | State::Ending { .. } => false,
        }
    }

    /// Until its last session is to be closed, if it drains.
    pub(super) fn drain_left(&self, now: Time) -> Option<Duration> {
        match self.state {
            State::Draining { kill_at, .. } => Some(now.until(kill_at).saturating_sub(GRACE)),
            State::Starting { .. } | State::Ready | State::Active | State::Standby | State::Ending { .. } => None,
        }
    }

    /// When its silence means that it is not well; one that can't speak or is being ended need not.
    pub(super) fn stats_deadline(&self) -> Option<Time> {
        match self.channel {
            Channel::Open | Channel::Garbled if !self.is_ending() => self.stats_due,
            Channel::Open | Channel::Garbled | Channel::Lost { .. } => None,
        }
    }

    /// The next moment at which something about this child alone is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        let state = match &self.state {
            State::Starting { deadline, .. } => Some(match &self.channel {
                Channel::Lost { exit_by, .. } => *exit_by.min(deadline),
                Channel::Open | Channel::Garbled => *deadline,
            }),
            State::Draining { kill_at, .. } => Some(*kill_at),
            State::Ending { escalation, .. } => match escalation {
                Escalation::Expected { kill_at } | Escalation::Terminated { kill_at } => Some(*kill_at),
                // Without a process, nothing has been killed yet.
                Escalation::Killed { stuck_at } => self.pid.map(|_| *stuck_at),
                Escalation::Stuck => None,
            },
            State::Ready | State::Active | State::Standby => None,
        };
        let pending = self.pending.map(|pending| pending.deadline);
        state.into_iter().chain(pending).chain(self.stats_deadline()).min()
    }
}

/// The state of a live generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum State {
    /// Ordered, but it has not said `ready`.
    Starting {
        step: Step,
        /// When it counts as failed.
        deadline: Time,
        /// `starting` moves the deadline no further than this.
        limit: Time,
    },
    /// It said `ready`; the order to steer to it is not confirmed yet.
    Ready,
    /// It gets the new handshakes.
    Active,
    /// It keeps its sessions while its successor is on probation.
    Standby,
    /// It lets its sessions go.
    Draining {
        /// The grace after its last session is to be closed, which is what it was told.
        kill_at: Time,
        asked: Asked,
    },
    /// It failed, was evicted or overstayed.
    Ending {
        /// It was switched to before, as far as is known: it may have connections.
        served: bool,
        escalation: Escalation,
    },
}

/// How far a starting generation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Step {
    /// There is no process yet.
    Spawning,
    /// It runs and has not said `hello`.
    Greeting,
    /// Its sockets are on the way.
    Adopting,
    /// It has its sockets.
    Adopted,
}

/// How a generation was asked to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Asked {
    /// By `drain`.
    Message,
    /// By SIGTERM: it did not acknowledge `drain`, or can't be told.
    Term,
}

/// How a generation is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Escalation {
    /// It said that it ends by itself.
    Expected { kill_at: Time },
    /// It got SIGTERM.
    Terminated { kill_at: Time },
    /// Its group got SIGKILL.
    Killed { stuck_at: Time },
    /// Not even that ends it.
    Stuck,
}

/// Whether a child can be told things.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Channel {
    /// It can.
    Open,
    /// It can, but has said something that is not a message; that is logged once.
    Garbled,
    /// It closed its end or does not read.
    Lost {
        /// How that showed.
        error: String,
        /// A process that is ending closes its channel first: until then, its exit says more about why.
        exit_by: Time,
    },
}

/// What a child said in its `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) program: String,
    pub(super) version: String,
    pub(super) drain_timeout: Option<Duration>,
    /// How long its clients go on when they hear nothing any more.
    pub(super) idle_timeout: Option<Duration>,
}

/// A role that a child was given and has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) seq: u64,
    pub(super) role: Role,
    pub(super) deadline: Time,
}

/// What a child was told to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Role {
    Activate,
    Standby,
    Drain { timeout: Duration },
    Undrain,
}

impl Role {
    /// The message for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Activate => "activate",
            Self::Standby => "standby",
            Self::Drain { .. } => "drain",
            Self::Undrain => "undrain",
        }
    }
}

/// How a process ended, for a log line or the answer to `upgrade`.
pub(super) fn describe(status: ExitStatus) -> String {
    match status {
        ExitStatus::Code(code) => format!("exited with status {code}"),
        ExitStatus::Signal(signal) => format!("was ended by signal {signal}"),
        ExitStatus::Unknown => "ended with an unknown status".to_owned(),
        ExitStatus::Lost => "can neither be found nor be told anything any more".to_owned(),
    }
}
