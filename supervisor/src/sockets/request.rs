//! What a child wants, checked: from here on an address is an address.

use protocol::message::{Kind, Wanted};
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Members of one listener, at most: what one message can carry (unix(7), SCM_MAX_FD).
const MAX_LISTENER_MEMBERS: u16 = 253;
/// Bytes in a listener's name, at most.
const MAX_NAME: usize = 64;
/// Bytes in the path of a unix socket, at most: `sun_path` without the closing NUL (unix(7)).
const MAX_PATH: usize = 107;
/// The permissions of a unix socket when none are wanted.
const DEFAULT_MODE: u32 = 0o600;

/// One listener that can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) what: What,
}

/// The kinds of listeners with what each needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Quic { address: SocketAddr, members: u16 },
    Tcp { address: SocketAddr },
    Unix { path: PathBuf, mode: u32 },
}

impl Request {
    fn parse(wanted: &Wanted) -> Result<Self, RequestError> {
        let name = &wanted.name;
        let known = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(known) {
            return Err(RequestError::Name { name: name.chars().take(2 * MAX_NAME).collect() });
        }
        let members = match wanted.kind {
            Kind::Quic => 1..=MAX_LISTENER_MEMBERS,
            Kind::Tcp | Kind::Unix => 1..=1,
        };
        if !members.contains(&wanted.members) {
            let (kind, most) = (wanted.kind, *members.end());
            return Err(RequestError::Members { name: name.clone(), kind, members: wanted.members, most });
        }
        if wanted.mode.is_some() && wanted.kind != Kind::Unix {
            return Err(RequestError::ModeOfKind { name: name.clone(), kind: wanted.kind });
        }
        let what = match wanted.kind {
            Kind::Quic => What::Quic { address: inet(wanted)?, members: wanted.members },
            Kind::Tcp => What::Tcp { address: inet(wanted)? },
            Kind::Unix => What::Unix { path: path(wanted)?, mode: mode(wanted)? },
        };
        Ok(Self { name: name.clone(), what })
    }

    /// All that a child wants.
    pub(super) fn parse_all(wanted: &[Wanted]) -> Result<Vec<Self>, RequestError> {
        let mut requests: Vec<Self> = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let request = Self::parse(wanted)?;
            if requests.iter().any(|other| other.name == request.name) {
                return Err(RequestError::Twice { name: request.name });
            }
            requests.push(request);
        }
        Ok(requests)
    }

    pub(super) const fn kind(&self) -> Kind {
        match self.what {
            What::Quic { .. } => Kind::Quic,
            What::Tcp { .. } => Kind::Tcp,
            What::Unix { .. } => Kind::Unix,
        }
    }

    pub(super) fn address(&self) -> Address {
        match &self.what {
            What::Quic { address, .. } | What::Tcp { address } => Address::Inet(*address),
            What::Unix { path, .. } => Address::Unix(path.clone()),
        }
    }
}

fn inet(wanted: &Wanted) -> Result<SocketAddr, RequestError> {
    let address: SocketAddr = wanted.address.parse().map_err(|_| RequestError::Inet {
        name: wanted.name.clone(),
        kind: wanted.kind,
        address: wanted.address.clone(),
    })?;
    // An IPv4 address in IPv6 clothes is the same place; as IPv4 it is comparable.
    Ok(match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::from((ip, v6.port())),
            None => address,
        },
        SocketAddr::V4(_) => address,
    })
}

fn path(wanted: &Wanted) -> Result<PathBuf, RequestError> {
    let bytes = wanted.address.as_bytes();
    let path = Path::new(OsStr::from_bytes(bytes));
    let names_a_file = path.is_absolute() && path.file_name().is_some() && !bytes.ends_with(b"/");
    if bytes.len() > MAX_PATH || bytes.contains(&0) || !names_a_file {
        return Err(RequestError::Path { name: wanted.name.clone(), path: wanted.address.clone() });
    }
    Ok(path.to_path_buf())
}

fn mode(wanted: &Wanted) -> Result<u32, RequestError> {
    let mode = wanted.mode.unwrap_or(DEFAULT_MODE);
    if mode > 0o777 { Err(RequestError::Mode { name: wanted.name.clone(), mode }) } else { Ok(mode) }
}

/// Where a listener is, or should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Inet(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// Whether the kernel is to choose the port.
    pub(super) fn any_port(&self) -> bool {
        matches!(self, Self::Inet(address) if address.port() == 0)
    }

    /// Whether two listeners of one kind would be in each other's way.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inet(one), Self::Inet(other)) => inet_overlap(*one, *other),
            (Self::Unix(one), Self::Unix(other)) => one == other,
            (Self::Inet(_), Self::Unix(_)) | (Self::Unix(_), Self::Inet(_)) => false,
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Whether packets for one could reach the other: one port, and the same address or a wildcard over it. `[::]` is
/// dual-stack, so it covers IPv4 too.
pub(super) fn inet_overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |wildcard: IpAddr, ip: IpAddr| match wildcard {
        IpAddr::V6(any) => any.is_unspecified(),
        IpAddr::V4(any) => any.is_unspecified() && ip.is_ipv4(),
    };
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() != 0 && one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

/// A listener that can't be, whoever holds what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Names go into logs, files and status output.
    #[error("listener {name:?}: a name is 1 to {MAX_NAME} of a-z 0-9 - _ .")]
    Name {
        /// What was given, shortened.
        name: String,
    },
    /// Sockets are found by name.
    #[error("listener {name} is wanted twice; give each its own name")]
    Twice {
        /// Which.
        name: String,
    },
    /// Zero, or more than can be handed over.
    #[error("listener {name}: {members} members, but a {kind} listener has {}", at_most(*most))]
    Members {
        /// Which.
        name: String,
        /// Its kind.
        kind: Kind,
        /// What was given.
        members: u16,
        /// The highest number possible.
        most: u16,
    },
    /// Not a literal address with a port.
    #[error(
        "listener {name}: {address:?} is no address for {kind}; give an IP address and a port, like [::]:443 or \
         192.0.2.1:443"
    )]
    Inet {
        /// Which.
        name: String,
        /// Its kind.
        kind: Kind,
        /// What was given.
        address: String,
    },
    /// Not the path of a file, or too long for the kernel.
    #[error("listener {name}: {path:?} is no path for a unix socket; give an absolute one of at most {MAX_PATH} bytes")]
    Path {
        /// Which.
        name: String,
        /// What was given.
        path: String,
    },
    /// More than permission bits.
    #[error("listener {name}: mode {mode:o} (octal) has more than the permission bits 777")]
    Mode {
        /// Which.
        name: String,
        /// What was given.
        mode: u32,
    },
    /// Only a unix socket has a file.
    #[error("listener {name}: a {kind} listener has no mode; leave it out")]
    ModeOfKind {
        /// Which.
        name: String,
        /// Its kind.
        kind: Kind,
    },
}

fn at_most(most: u16) -> String {
    if most == 1 { "exactly 1".to_owned() } else { format!("1 to {most}") }
}
