//! What goes into the core and what comes out: facts are [`Event`]s, orders are [`Action`]s.

use protocol::message::{FromChild, Generation, ToChild, Wanted};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Names one waiter (a control request), so that its answer finds it. Given by the driver, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// What the operator configured, as far as the lifecycle depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// `--drain-timeout`: governs the drain after a handoff.
    pub drain_timeout: Duration,
    /// `--stop-timeout`: governs the drain at a stop; `None`: the child's own `drain_timeout_ms`, else 10 s.
    pub stop_timeout: Option<Duration>,
    /// `--ready-timeout`: from spawn to `ready`.
    pub ready_timeout: Duration,
    /// `--probation`: from the switch to commit; zero: commit at once.
    pub probation: Duration,
    /// `--max-generations`: live at the same time, 2 to 16.
    pub max_generations: usize,
    /// `--check-command` is set: run it before each spawn of an upgrade.
    pub check: bool,
    /// `--health-url` or `--health-command` is set: probe during probation.
    pub health: bool,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It returned this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
    /// It was not our child any more (an earlier supervisor's) and the kernel does not say.
    Unknown,
    /// Nobody can say whether it has ended: it can neither be found nor be told anything. Nobody answers for it, since it
    /// may have connections.
    Lost,
}

impl ExitStatus {
    /// From the form of wait(2): the signal in the lowest seven bits, else the code in the next byte.
    #[must_use]
    pub const fn from_wait(status: u32) -> Self {
        let [low, code, ..] = status.to_le_bytes();
        match low & 0x7f {
            0 => Self::Code(code),
            signal => Self::Signal(signal),
        }
    }
}

/// Why a program could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SpawnError {
    /// There is no such program.
    NotFound(String),
    /// It exists, but can't be executed (permission, format).
    NotExecutable(String),
    /// Something of the system failed (fork, descriptors, memory).
    Other(String),
}

/// A fact for the core.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The supervisor is set up; start the first generation.
    Start,
    /// The supervisor is set up and goes on with what an earlier one left ([`super::Core::restored`] or
    /// [`super::Core::degraded`]).
    Resume {
        /// Begin with an upgrade: the earlier one left to be replaced.
        upgrade: bool,
    },
    /// SIGUSR2, or `upgrade` (then `waiter` gets the outcome).
    Upgrade {
        /// Who waits for the outcome, if anyone.
        waiter: Option<RequestId>,
        /// Make room by evicting the oldest when `max_generations` are live.
        evict_oldest: bool,
    },
    /// `rollback`.
    Rollback {
        /// Who waits for the outcome, if anyone.
        waiter: Option<RequestId>,
    },
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP: `reload` for every live generation.
    Reload,
    /// SIGRTMIN+1.
    Leave {
        /// Every socket, channel and the state are in an fd store, so that another supervisor can go on.
        stored: bool,
    },
    /// `--check-command` ended.
    Checked {
        /// For which generation.
        generation: Generation,
        /// `Err`: why it says no.
        result: Result<(), String>,
    },
    /// The process of [`Action::Spawn`] runs.
    Spawned {
        /// Which.
        generation: Generation,
        /// Its process id.
        pid: u32,
    },
    /// [`Action::Spawn`] failed.
    SpawnFailed {
        /// Which.
        generation: Generation,
        /// Why.
        error: SpawnError,
    },
    /// [`Action::Adopt`] has been sent.
    Adopted {
        /// To whom.
        generation: Generation,
    },
    /// [`Action::Adopt`] failed: an address can't be bound, or a limit was hit.
    AdoptFailed {
        /// For whom.
        generation: Generation,
        /// One line for the operator.
        error: String,
        /// What the supervisor ends with if it is the first generation: one of [`protocol::exit`].
        status: u8,
    },
    /// [`Action::Steer`] is in force on every group. Each `Steer` is answered by `Steered` or `SteerFailed`, so that
    /// nobody takes a role that the kernel does not know of.
    Steered {
        /// [`Steering::active`] of that order.
        active: Generation,
    },
    /// [`Action::Steer`] failed; what was attached before is still attached.
    SteerFailed {
        /// [`Steering::active`] of that order.
        active: Generation,
        /// One line for the operator.
        error: String,
    },
    /// A child said something (`keep` is the driver's own; it does not reach the core).
    Message {
        /// Who.
        generation: Generation,
        /// What.
        message: FromChild,
    },
    /// A child said something that is not a message: not JSON, oversized, wrong descriptors.
    Garbage {
        /// Who.
        generation: Generation,
        /// One line for the operator.
        error: String,
    },
    /// A child closed its channel, or does not read it (its buffer is full).
    ChannelLost {
        /// Who.
        generation: Generation,
        /// One line for the operator.
        error: String,
    },
    /// A child ended and has been reaped.
    Exited {
        /// Which.
        generation: Generation,
        /// How.
        status: ExitStatus,
    },
    /// One health probe ended.
    Probed {
        /// Which generation was asked.
        generation: Generation,
        /// `Err`: why it counts as a failure.
        result: Result<(), String>,
    },
    /// Time has passed: a deadline of [`super::Core::next_deadline`] may be due.
    Tick,
}

/// Which processes a signal goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kill {
    /// SIGTERM to the process (by pidfd).
    Term,
    /// SIGKILL to its whole process group, and to the process by pidfd.
    Group,
}

/// Who gets which packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Steering {
    /// Generations whose connection IDs lead to their own members; oldest first.
    pub live: Vec<Generation>,
    /// Gets every other packet. It may be a dead one: then its packets wait in its sockets for the successor.
    pub active: Generation,
    /// Gets a share of the clients that are new, in permille.
    pub canary: Option<(Generation, u16)>,
}

/// An order of the core. The driver performs them in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Run `--check-command`; answered by `Checked`.
    Check {
        /// For which generation.
        generation: Generation,
    },
    /// End `--check-command` if it still runs: nobody waits for its verdict any more.
    StopCheck {
        /// For which generation it ran.
        generation: Generation,
    },
    /// No generation lives and the numbers are used up: take a new boot id; numbers begin at 1 again.
    Rekey,
    /// Start the program; answered by `Spawned` or `SpawnFailed`.
    Spawn {
        /// As which generation.
        generation: Generation,
    },
    /// Find or bind what it wants and send `adopt`; answered by `Adopted` or `AdoptFailed`.
    Adopt {
        /// Who.
        generation: Generation,
        /// What it wants.
        wanted: Vec<Wanted>,
        /// The protocol version chosen.
        protocol: u32,
        /// `adopt.gro`.
        gro: bool,
        /// `adopt.older_live`.
        older_live: bool,
        /// It keeps a ledger: give it one.
        ledger: bool,
        /// Peer it with these older generations: right after its sockets, it and each of them get one end of a connected
        /// pair. One that can't be told any more has no link.
        links: Vec<Generation>,
        /// Serve on the members of this dead generation, whose packets wait in its sockets. They stay that generation's
        /// until its own `Retire`: several successors in a row may be offered them.
        takes_over: Option<Generation>,
        /// Empty those members' queues first (the outage was longer than 3 s).
        flush: bool,
    },
    /// Send a message that has no descriptors beside it.
    Send {
        /// To whom.
        generation: Generation,
        /// What.
        message: ToChild,
    },
    /// Send `heir` with the reset keys and ledgers of these dead generations.
    Heir {
        /// To whom.
        generation: Generation,
        /// Those that it has not been told of.
        dead: Vec<Generation>,
    },
    /// The clients of this dead generation have given up: its ledger is of no more use.
    Forget {
        /// Which.
        generation: Generation,
    },
    /// Set UDP_GRO on every member; when turning it off, read it back as off before the next action.
    Gro {
        /// On or off.
        on: bool,
    },
    /// Replace the steering program of every group; answered by `Steered` or `SteerFailed`.
    Steer(Steering),
    /// Signal a child.
    Kill {
        /// Which.
        generation: Generation,
        /// How.
        how: Kill,
    },
    /// It is gone: members that no live generation serves are free for others, its channel is closed, listeners that no
    /// live generation wants are closed, what it left behind is swept. Comes once for each `Spawn`.
    Retire {
        /// Which.
        generation: Generation,
    },
    /// Begin probing `--health-url` or `--health-command` (each 250 ms); answered by `Probed` each time.
    Probe {
        /// Which generation.
        generation: Generation,
    },
    /// Stop probing.
    StopProbe,
    /// Answer a waiter.
    Reply {
        /// Whom.
        to: RequestId,
        /// What.
        outcome: Outcome,
    },
    /// Tell the service manager and the log.
    Note(Note),
    /// Leave the loop and end with this status.
    Exit {
        /// The exit status.
        status: u8,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done: for `upgrade`, this generation is committed; for `rollback`, this one is active again.
    Done {
        /// Which generation is active.
        active: Generation,
    },
    /// Nothing was changed.
    Denied(Deny),
    /// The new generation failed before it was ready; the old one serves on.
    Failed {
        /// Which failed.
        generation: Generation,
        /// Why.
        reason: String,
    },
    /// The new generation was rolled back in its probation; the old one serves on.
    RolledBack {
        /// Which failed.
        generation: Generation,
        /// Why.
        reason: String,
    },
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Deny {
    /// The service is stopping.
    Stopping,
    /// `max_generations` are live.
    TooMany {
        /// The oldest.
        oldest: Generation,
        /// Its sessions as last reported.
        sessions: u64,
        /// Until its deadline.
        left: Duration,
    },
    /// `rollback`: no probation is running.
    NoProbation,
    /// `leave`: sockets, channels and state are not in an fd store.
    NotStored,
    /// This supervisor is leaving; the next one goes on.
    Leaving,
    /// The generation numbers are used up while others live; stop and start the service.
    OutOfGenerations,
}

/// Something that people are told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// The first generation is active, or the start's upgrade failed while an older one serves (READY=1, once).
    Serving,
    /// A state changed; the status text is due.
    Changed,
    /// The service is stopping (STOPPING=1).
    Stopping,
    /// One line for the log.
    Info(String),
    /// One line for the log, of something that an operator should look at.
    Warn(String),
}
