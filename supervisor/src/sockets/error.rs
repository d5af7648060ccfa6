//! What can go wrong with sockets: one clear line each, with the culprit and the remedy.

use super::holder::Holder;
use super::request::RequestError;
use crate::steering::{PlanError, RangeError};
use crate::sys::bpf::AttachError;
use protocol::cid::MAX_MEMBERS;
use protocol::exit;
use protocol::message::{Generation, Kind};
use std::io;
use std::path::PathBuf;

/// Why a generation can't have what it wants. Nothing has changed for the others, and nothing was left open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// What it asks for makes no sense.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Two listeners of ours would take each other's packets.
    #[error(
        "listener {name}: {address} overlaps with {other_address} of listener {other}: the kernel can't keep the two \
         apart on one port; use one of them, or another port (and stop and start the service when a running relay \
         still holds the other)"
    )]
    Overlap {
        /// The listener that can't be had.
        name: String,
        /// Its address.
        address: String,
        /// The listener that is in the way.
        other: String,
        /// Its address.
        other_address: String,
    },
    /// Someone else has the address.
    #[error("listener {name}: {kind} {address} is in use by {holder}; stop it, or choose another address")]
    InUse {
        /// The listener.
        name: String,
        /// Its kind.
        kind: Kind,
        /// The address.
        address: String,
        /// Who has it.
        holder: Holder,
    },
    /// There are no more member numbers.
    #[error(
        "listener {name}: {wanted} more members would make {total}, and {MAX_MEMBERS} is the limit over all live \
         generations; ask for fewer members (--runtime-workers), or let older generations end first"
    )]
    Members {
        /// The listener that goes beyond.
        name: String,
        /// How many new sockets it needs.
        wanted: usize,
        /// How many there would be.
        total: usize,
    },
    /// There is something else at the path of a unix socket.
    #[error("listener {name}: {} exists and is not a socket; remove it, or choose another path", path.display())]
    NotASocket {
        /// The listener.
        name: String,
        /// The path.
        path: PathBuf,
    },
    /// The system said no.
    #[error("listener {name}: can't {action} {kind} {address}: {source}{}", hint(*kind, source))]
    System {
        /// The listener.
        name: String,
        /// Its kind.
        kind: Kind,
        /// The address.
        address: String,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It has been granted its listeners before.
    #[error("generation {generation} has its listeners already; a second hello is not possible")]
    Again {
        /// Which generation.
        generation: Generation,
    },
}

impl GrantError {
    /// The exit status of a supervisor whose first generation fails by this.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::InUse { .. } => exit::IN_USE,
            Self::Request(_)
            | Self::Overlap { .. }
            | Self::Members { .. }
            | Self::NotASocket { .. }
            | Self::System { .. }
            | Self::Again { .. } => exit::NOT_READY,
        }
    }
}

/// The remedy, for errors whose own text does not suggest it.
fn hint(kind: Kind, error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if kind == Kind::Unix => " (the user may not write to its directory)",
        Some(libc::EACCES | libc::EPERM) => " (ports below 1024 need CAP_NET_BIND_SERVICE)",
        Some(libc::EADDRNOTAVAIL) => " (no interface has this address)",
        Some(libc::EMFILE) => " (raise the limit of open files: ulimit -n, LimitNOFILE=)",
        Some(libc::ENOENT) => " (make its directory first)",
        Some(libc::EAFNOSUPPORT) => " (IPv6 is off on this machine)",
        Some(_) | None => "",
    }
}

/// Why UDP_GRO is not what it should be on every member.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroError {
    /// The kernel said no.
    #[error("can't turn UDP_GRO {} on {address}: {source}", on_off(*on))]
    System {
        /// The group.
        address: String,
        /// What was wanted.
        on: bool,
        /// What the kernel said.
        source: io::Error,
    },
    /// It does not stick: someone sets it the other way.
    #[error("UDP_GRO on member {position} of {address} reads back {} after it was turned {}", on_off(!on), on_off(*on))]
    Unchanged {
        /// The group.
        address: String,
        /// The member.
        position: usize,
        /// What was wanted.
        on: bool,
    },
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Why the steering was not replaced. What was attached before is still attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// The members of a generation don't make ranges.
    #[error("steering of {address}: {source}")]
    Range {
        /// The group.
        address: String,
        /// Why.
        source: RangeError,
    },
    /// The ranges don't make a plan.
    #[error("steering of {address}: {source}")]
    Plan {
        /// The group.
        address: String,
        /// Why.
        source: PlanError,
    },
    /// A generation number that has no place in a connection ID.
    #[error("steering of {address}: generation {generation} can't be written into connection IDs")]
    Generation {
        /// The group.
        address: String,
        /// Which.
        generation: Generation,
    },
    /// The kernel did not take the program.
    #[error("steering of {address}: {source}")]
    Attach {
        /// The group.
        address: String,
        /// Why.
        source: AttachError,
    },
}

/// Something that works, but not as well as it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The kernel gave smaller socket buffers than asked for.
    #[error(
        "listener {name}: the kernel gave {granted} of {wanted} bytes of socket buffer; bursts will be lost: raise the \
         sysctl {sysctl}"
    )]
    Buffer {
        /// The listener.
        name: String,
        /// Bytes asked for.
        wanted: usize,
        /// Bytes given.
        granted: usize,
        /// What limits it.
        sysctl: &'static str,
    },
    /// The path of a unix socket does not have the permissions that are wanted.
    #[error("can't set the permissions of {path} to {mode:o}: {error}")]
    Mode {
        /// The path.
        path: String,
        /// What was wanted.
        mode: u32,
        /// What the system said.
        error: String,
    },
}
