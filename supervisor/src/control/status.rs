//! The answer to `status`. Fields are only ever added (docs/control.md).

use protocol::message::{Generation, Kind};
use serde::{Deserialize, Serialize};

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The supervisor itself.
    pub supervisor: SupervisorStatus,
    /// `idle`, `starting`, `serving`, `failed`, `stopping`, `leaving`, `ended`.
    pub phase: String,
    /// One sentence for people; also the service manager's STATUS.
    pub text: String,
    /// The live generations, oldest first.
    pub generations: Vec<GenerationStatus>,
    /// What the live generations listen on.
    pub listeners: Vec<ListenerStatus>,
    /// The upgrade in flight.
    pub upgrade: Option<UpgradeStatus>,
    /// The last generation that failed since the start.
    pub last_failure: Option<FailureStatus>,
    /// What an operator should look at, one line each.
    pub alarms: Vec<String>,
}

/// The supervisor itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorStatus {
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Milliseconds since its start.
    pub uptime_ms: u64,
    /// `--exec` as given.
    pub program: String,
}

/// One generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// Its number.
    pub generation: Generation,
    /// `starting`, `ready`, `active`, `standby`, `draining`, `ending` (failed or evicted, being ended).
    pub state: String,
    /// Its process id, once it runs.
    pub pid: Option<u32>,
    /// Its program's own name and version, from `hello`.
    pub program: Option<String>,
    /// Starting: milliseconds until it counts as failed. Draining: until its deadline. Ending: until SIGKILL.
    pub deadline_ms: Option<u64>,
    /// Sessions that are open.
    pub sessions: u64,
    /// Connections still in setup.
    pub setup: u64,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Sessions told to go.
    pub told: u64,
    /// Told sessions that left by themselves.
    pub left: u64,
    /// Sessions closed by the drain deadline.
    pub forced: u64,
    /// Packets that belonged to another member or generation.
    pub foreign: u64,
    /// What it said last when it was not well.
    pub unhealthy: Option<String>,
    /// Its channel is closed or not read: it can be told nothing.
    pub unreachable: bool,
    /// Its traffic counters, as it says them.
    pub traffic: serde_json::Map<String, serde_json::Value>,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// Its name in the child's `hello`.
    pub name: String,
    /// `quic`, `tcp` or `unix`.
    pub kind: Kind,
    /// Where it is bound.
    pub address: String,
    /// How many sockets the youngest generation that has it serves; 1 for streams.
    pub members: usize,
}

/// An upgrade in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeStatus {
    /// The new generation, once it has a number.
    pub generation: Option<Generation>,
    /// `making_room`, `checking`, `starting`, `switching`, `probation`.
    pub phase: String,
    /// Milliseconds until this phase ends by itself.
    pub deadline_ms: Option<u64>,
    /// Another one follows it.
    pub again: bool,
}

/// A generation that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureStatus {
    /// Which.
    pub generation: Generation,
    /// Why, in one line.
    pub reason: String,
}
