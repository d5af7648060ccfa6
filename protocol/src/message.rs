//! The messages of the child protocol.
//!
//! Each message is one JSON object in one `SOCK_SEQPACKET` record, its kind in `"type"`. File descriptors travel
//! beside the message that names them (`SCM_RIGHTS`, unix(7)), in the order in which the message lists them.
//! A field that the reader does not know is ignored; a message it does not know is answered with `unsupported`.
//! Durations are whole milliseconds in fields that end in `_ms`.

use crate::cid::MemberId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The oldest protocol version that this build speaks.
pub const VERSION_MIN: u32 = 1;
/// The newest protocol version that this build speaks.
pub const VERSION_MAX: u32 = 1;

/// How many secrets a supervisor keeps for its children.
pub const MAX_KEPT: usize = 16;
/// How long a kept secret can be, in bytes.
pub const MAX_KEPT_BYTES: usize = 1 << 20;

/// Whether this can name a listener or a kept secret: 1 to 64 of `a-z 0-9 - _ .`.
#[must_use]
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))
}

/// What one side says to the other: [`FromChild`] or [`ToChild`].
pub trait Message: Serialize + DeserializeOwned {
    /// Every `type` that this build knows, so that an unknown one is told apart from one with wrong fields.
    const TYPES: &'static [&'static str];
}

/// A closed range of protocol versions, as offered in [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange {
    /// The oldest version spoken.
    pub min: u32,
    /// The newest version spoken; at least `min`.
    pub max: u32,
}

impl VersionRange {
    /// What this build speaks.
    pub const OURS: Self = Self { min: VERSION_MIN, max: VERSION_MAX };

    /// The newest version that both speak, if any.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u32> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

/// The number of one relay process, from spawn to exit: from 1, never reused while a supervisor's boot id lives.
/// At most [`crate::cid::MAX_GENERATION`], because it is part of every connection ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u32);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What kind of socket a listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// UDP sockets in one SO_REUSEPORT group, steered by connection ID (QUIC).
    Quic,
    /// One listening TCP socket.
    Tcp,
    /// One listening unix stream socket.
    Unix,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quic => "quic",
            Self::Tcp => "tcp",
            Self::Unix => "unix",
        })
    }
}

/// A listener that a child wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The child's own name for it, unique within its `hello`: 1 to 64 of `a-z 0-9 - _ .`.
    pub name: String,
    /// The kind of socket.
    pub kind: Kind,
    /// `quic` and `tcp`: `host:port`, the host an IP address (IPv6 in brackets; `[::]` is dual-stack); port 0 means any,
    /// and the port once found is kept for those who ask for port 0 again. `unix`: an absolute path.
    pub address: String,
    /// `quic`: how many sockets (members), 1 to 253. Otherwise 1.
    #[serde(default = "one")]
    pub members: u16,
    /// `unix`: the permission bits of the socket file, octal as a number (0o666 is 438); absent: 0o600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

impl Wanted {
    /// UDP sockets for QUIC.
    #[must_use]
    pub fn quic(name: impl Into<String>, address: impl Into<String>, members: u16) -> Self {
        Self { name: name.into(), kind: Kind::Quic, address: address.into(), members, mode: None }
    }

    /// A TCP listener.
    #[must_use]
    pub fn tcp(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self { name: name.into(), kind: Kind::Tcp, address: address.into(), members: 1, mode: None }
    }

    /// A unix stream listener with these permission bits.
    #[must_use]
    pub fn unix(name: impl Into<String>, path: impl Into<String>, mode: u32) -> Self {
        Self { name: name.into(), kind: Kind::Unix, address: path.into(), members: 1, mode: Some(mode) }
    }
}

fn one() -> u16 {
    1
}

/// A listener that the supervisor hands over, with its descriptors beside the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// The name from [`Wanted`].
    pub name: String,
    /// The kind of socket.
    pub kind: Kind,
    /// The address it is really bound to (a port 0 is resolved).
    pub address: String,
    /// One number per descriptor of this listener in this message. `quic`: the member numbers, which go into the
    /// connection IDs ([`crate::cid::MemberId`]). Otherwise one 0.
    pub members: Vec<u16>,
}

/// How a child should drain, unless `drain` says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainSettings {
    /// From the first GOAWAY to the last forced close.
    pub timeout_ms: u64,
    /// How long the GOAWAYs are spread over; absent: the child's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_ms: Option<u64>,
}

/// Counters of one child, each since its start. A child that has nothing to say about a field leaves it 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Sessions that are open now.
    pub sessions: u64,
    /// Connections still in setup now.
    pub setup: u64,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Sessions that were told to go (GOAWAY).
    pub told: u64,
    /// Told sessions that left by themselves.
    pub left: u64,
    /// Sessions closed by the drain deadline.
    pub forced: u64,
    /// Packets whose connection ID belongs to another member or generation.
    pub foreign: u64,
    /// Traffic counters by name, each since the child's start, passed through to `status` and `counters` as they are. For
    /// `counters`, those of generations that have gone are added up, number by number, also within objects.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub traffic: serde_json::Map<String, serde_json::Value>,
}

impl Stats {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The first message of a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The versions it speaks.
    pub protocol: VersionRange,
    /// Its name, for people.
    pub program: String,
    /// Its version, for people.
    pub version: String,
    /// Its process id in the supervisor's pid namespace, if it knows it; informative.
    pub pid: u32,
    /// What it wants to listen on; at most 4 096 members over all live generations.
    pub listeners: Vec<Wanted>,
    /// Its own drain timeout, which governs a stop of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout_ms: Option<u64>,
    /// How long a client of its goes on when it hears nothing any more: the QUIC idle timeout. It is told of this child's
    /// death for that long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    /// Whether it keeps a ledger ([`crate::ledger`]) if it gets one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ledger: bool,
}

impl Hello {
    /// Of this process, in the versions that this build speaks.
    #[must_use]
    pub fn new(program: impl Into<String>, version: impl Into<String>, listeners: Vec<Wanted>) -> Self {
        Self {
            protocol: VersionRange::OURS,
            program: program.into(),
            version: version.into(),
            pid: std::process::id(),
            listeners,
            drain_timeout_ms: None,
            idle_timeout_ms: None,
            ledger: false,
        }
    }
}

/// The supervisor's answer to `hello`.
///
/// One record carries at most 253 descriptors (unix(7), SCM_MAX_FD), so a long list comes in several `adopt` messages,
/// of which all but the last say `more`. Beside the *first* come, before the sockets, one sealed memfd with the derived
/// keys ([`crate::keys`]), one memfd per name in `kept`, and, if `ledger` says so, the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// The protocol version chosen.
    pub protocol: u32,
    /// The child's generation.
    pub generation: Generation,
    /// The names of the secrets of earlier `keep` messages, in the order of their memfds.
    #[serde(default)]
    pub kept: Vec<String>,
    /// The sockets, in the order of their descriptors.
    pub sockets: Vec<Adopted>,
    /// False: clear UDP_GRO right after wrapping a QUIC socket (older generations live; see `gro`).
    pub gro: bool,
    /// How to drain when `drain` does not say otherwise.
    pub drain: DrainSettings,
    /// True while older generations are alive.
    pub older_live: bool,
    /// True: the ledger ([`crate::ledger`]) that this child is to keep is beside the first message.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ledger: bool,
    /// So many `link` messages follow the last `adopt`, one for each older generation that can be peered with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub links: u16,
    /// True: another `adopt` follows with the rest of the sockets.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde's skip_serializing_if calls")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde's skip_serializing_if calls")]
fn is_zero(value: &u16) -> bool {
    *value == 0
}

/// Messages from the child to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromChild {
    /// The first message.
    Hello(Hello),
    /// An opaque secret, in one memfd beside this message, to be handed back to later generations; at most
    /// [`MAX_KEPT_BYTES`] long, and [`MAX_KEPT`] of them. The same name again replaces it.
    Keep {
        /// 1 to 64 of `a-z 0-9 - _ .`.
        name: String,
    },
    /// It needs more time to get ready.
    Starting {
        /// From now on.
        more_ms: u64,
    },
    /// It serves.
    Ready,
    /// It can't serve, and ends.
    Failed {
        /// One line for the operator.
        error: String,
    },
    /// It is no longer well.
    Unhealthy {
        /// One line for the operator.
        reason: String,
    },
    /// A role message of the supervisor has been carried out (activate, standby, canary, drain, undrain).
    Ack {
        /// The number from the role message.
        seq: u64,
    },
    /// Counters: once a second, and at changes.
    Stats(Stats),
    /// It does not know this message.
    Unsupported {
        /// The `type` that it does not know.
        message: String,
    },
}

impl Message for FromChild {
    const TYPES: &'static [&'static str] =
        &["hello", "keep", "starting", "ready", "failed", "unhealthy", "ack", "stats", "unsupported"];
}

/// Messages from the supervisor to the child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToChild {
    /// The answer to `hello`, with descriptors.
    Adopt(Adopt),
    /// The child's `hello` can't be granted; it should end.
    Refused {
        /// One line for the operator.
        error: String,
    },
    /// It gets the new handshakes: accept on every listener. Acknowledged.
    Activate {
        /// To be repeated in `ack`.
        seq: u64,
    },
    /// New handshakes go to another: keep the sessions, stop accepting on stream listeners, finish handshakes that
    /// still arrive for a grace period, send no GOAWAY. Acknowledged.
    Standby {
        /// To be repeated in `ack`.
        seq: u64,
    },
    /// It gets a share of the new handshakes. Acknowledged.
    Canary {
        /// To be repeated in `ack`.
        seq: u64,
        /// Of 1 000 new clients, how many; 0 to 1 000.
        permille: u16,
    },
    /// Tell the sessions to go, close those that stay at their deadline, end when the last has ended. Acknowledged
    /// when the drain has begun.
    Drain {
        /// To be repeated in `ack`.
        seq: u64,
        /// From now to the last forced close.
        timeout_ms: u64,
        /// How long the GOAWAYs are spread over; absent: the child's own rule.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spread_ms: Option<u64>,
    },
    /// The last resort after failed respawns: accept new sessions again without telling them to go. Acknowledged.
    Undrain {
        /// To be repeated in `ack`.
        seq: u64,
    },
    /// It is the only generation left.
    Alone,
    /// Read certificates and the like afresh.
    Reload,
    /// UDP_GRO of all members has been set to this by the supervisor.
    Gro {
        /// Whether datagrams may be merged.
        on: bool,
    },
    /// It answers for these dead generations: beside it, per generation, one memfd with its reset key, then the
    /// ledgers.
    Heir {
        /// Those generations.
        generations: Vec<Generation>,
        /// The ledgers that there are, in the order of their descriptors.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ledgers: Vec<LedgerOf>,
    },
    /// Peer with that live generation over the stream socket beside this message.
    Link {
        /// The other end.
        generation: Generation,
    },
    /// What the others said last; it may have to answer for the node.
    Counters {
        /// It publishes the node's statistics from now on, until a `drain`.
        speaks: bool,
        /// No other generation answers for the node any more, and `generations` and `gone` have at least what any has shown.
        #[serde(default, skip_serializing_if = "is_false")]
        settled: bool,
        /// The other live generations.
        generations: Vec<GenerationStats>,
        /// The generations that have gone, added up: their `sessions` and `setup` are 0.
        #[serde(default, skip_serializing_if = "Stats::is_nothing")]
        gone: Stats,
    },
    /// The supervisor does not know this message.
    Unsupported {
        /// The `type` that it does not know.
        message: String,
    },
}

impl Message for ToChild {
    const TYPES: &'static [&'static str] = &[
        "adopt",
        "refused",
        "activate",
        "standby",
        "canary",
        "drain",
        "undrain",
        "alone",
        "reload",
        "gro",
        "heir",
        "link",
        "counters",
        "unsupported",
    ];
}

/// A ledger, in `heir`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerOf {
    /// Who kept it; one of `generations`.
    pub generation: Generation,
    /// From which of the heir's sockets the clients in it can be told.
    #[serde(default)]
    pub routes: Vec<Route>,
}

/// Which members of a dead generation listened where the heir does, in `heir`. The clients of the dead member
/// `first + i` are reached from the heir's member `via + i mod via_members`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The number of the dead generation's first member there.
    pub first: u16,
    /// How many it had there.
    pub members: u16,
    /// The number of the heir's first member there.
    pub via: u16,
    /// How many it has there; at least 1.
    pub via_members: u16,
}

impl Route {
    /// The heir's member for a client of this member of the dead generation; `None`: this is not its route.
    #[must_use]
    pub fn via(&self, member: MemberId) -> Option<MemberId> {
        let index = member.get().checked_sub(self.first).filter(|index| *index < self.members)?;
        MemberId::new(self.via.checked_add(index.checked_rem(self.via_members)?)?)
    }
}

/// One generation's counters, in `counters`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStats {
    /// Whose.
    pub generation: Generation,
    /// What it said last.
    pub stats: Stats,
}
