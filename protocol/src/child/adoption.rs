//! What a child is handed, checked: a supervisor that mixes up descriptors is told apart from a broken network here, and
//! not at the first packet.

use super::AdoptError;
use crate::channel::read_memfd;
use crate::cid::{MAX_GENERATION, MemberId};
use crate::keys::ChildKeys;
use crate::ledger::{self, Ledger};
use crate::message::{self, Adopt, Adopted, Generation, Hello, Kind, MAX_KEPT_BYTES, VersionRange};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// What the supervisor handed over.
#[derive(Debug)]
pub struct Adoption {
    /// Which generation this child is.
    pub generation: Generation,
    /// Its listeners, in the order of `hello`.
    pub listeners: Vec<Listener>,
    /// False: clear UDP_GRO right after wrapping a QUIC socket ([`crate::quinn`] does it).
    pub gro: bool,
    /// How to drain when nothing else is said.
    pub drain: DrainSettings,
    /// Whether older generations were alive.
    pub older_live: bool,
    /// So many [`super::Command::Link`] come before any other command that concerns roles.
    pub links: u16,
    /// The keys of connection IDs, resets, tokens and tickets.
    pub keys: Arc<ChildKeys>,
    /// The secrets that earlier generations had kept, by name.
    pub kept: BTreeMap<String, Zeroizing<Vec<u8>>>,
    /// Where to keep who has to be told if this process dies; [`crate::quinn`] does it. `None`: `hello` did not want one, or
    /// the supervisor has none.
    pub ledger: Option<Arc<Ledger>>,
}

/// How to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainSettings {
    /// From the first GOAWAY to the last forced close.
    pub timeout: Duration,
    /// How long the GOAWAYs are spread over; `None`: the child's own rule.
    pub spread: Option<Duration>,
}

/// One listener.
#[derive(Debug)]
pub struct Listener {
    /// The child's name for it, from `hello`.
    pub name: String,
    /// What it is really bound to: `host:port` or a path.
    pub address: String,
    /// Its sockets, close-on-exec; they share their status flags with the supervisor and other generations, so that
    /// non-blocking is the only mode in which to use them.
    pub socket: Socket,
}

/// The sockets of one listener.
#[derive(Debug)]
pub enum Socket {
    /// Bound UDP sockets, at least one.
    Quic(Vec<Member>),
    /// Listening.
    Tcp(TcpListener),
    /// Listening.
    Unix(UnixListener),
}

/// One UDP socket of a group.
#[derive(Debug)]
pub struct Member {
    /// The number that goes into its connection IDs.
    pub id: MemberId,
    /// Bound.
    pub socket: UdpSocket,
}

/// An adoption whose `adopt` messages have not all come.
pub(super) struct Assembly {
    wanted: Vec<(String, Kind)>,
    /// How long a client is silent at most.
    max_silence: Duration,
    begun: Option<Adoption>,
}

/// What an `adopt` message led to.
pub(super) enum Progress {
    More(Assembly),
    Complete(Adoption),
}

impl Assembly {
    pub(super) fn new(hello: &Hello) -> Self {
        Self {
            wanted: hello.listeners.iter().map(|wanted| (wanted.name.clone(), wanted.kind)).collect(),
            max_silence: ledger::max_silence(hello.idle_timeout_ms.map(Duration::from_millis)),
            begun: None,
        }
    }

    pub(super) fn add(self, adopt: Adopt, fds: Vec<OwnedFd>) -> Result<Progress, AdoptError> {
        let secrets = if self.begun.is_none() { secrets(&adopt) } else { 0 };
        let listed = secrets + adopt.sockets.iter().map(|adopted| adopted.members.len()).sum::<usize>();
        if listed != fds.len() {
            return Err(AdoptError::Fds { listed, came: fds.len() });
        }
        let mut fds = fds.into_iter();
        let mut adoption = match self.begun {
            Some(begun) => begun,
            None => begin(&adopt, &mut fds, self.max_silence)?,
        };
        for adopted in adopt.sockets {
            let members = fds.by_ref().take(adopted.members.len()).collect();
            adoption.add(&self.wanted, adopted, members)?;
        }
        if adopt.more {
            return Ok(Progress::More(Self { begun: Some(adoption), ..self }));
        }
        let position = |name: &str| self.wanted.iter().position(|(wanted, _)| wanted == name);
        adoption.listeners.sort_by_key(|listener| position(&listener.name));
        match self.wanted.into_iter().find(|(name, _)| !adoption.listeners.iter().any(|have| have.name == *name)) {
            Some((name, _)) => Err(AdoptError::Missing { name }),
            None => Ok(Progress::Complete(adoption)),
        }
    }
}

/// How many descriptors come before the sockets.
fn secrets(adopt: &Adopt) -> usize {
    1 + adopt.kept.len() + usize::from(adopt.ledger)
}

/// All but the sockets.
fn begin(
    adopt: &Adopt,
    fds: &mut impl Iterator<Item = OwnedFd>,
    max_silence: Duration,
) -> Result<Adoption, AdoptError> {
    if !(VersionRange::OURS.min..=VersionRange::OURS.max).contains(&adopt.protocol) {
        return Err(AdoptError::Version(adopt.protocol));
    }
    if !(1..=MAX_GENERATION).contains(&adopt.generation.0) {
        return Err(AdoptError::Generation(adopt.generation.0));
    }
    let fds_short = || AdoptError::Fds { listed: secrets(adopt), came: 0 };
    let keys = fds.next().ok_or_else(fds_short)?;
    let keys = ChildKeys::from_bytes(&read_memfd(keys.as_fd(), ChildKeys::ENCODED_LEN)?)?;
    let mut kept = BTreeMap::new();
    for name in &adopt.kept {
        let memfd = fds.next().ok_or_else(fds_short)?;
        let secret = read_memfd(memfd.as_fd(), MAX_KEPT_BYTES)
            .map_err(|error| AdoptError::Kept { name: name.clone(), error })?;
        kept.insert(name.clone(), secret);
    }
    let ledger =
        if adopt.ledger { Some(Arc::new(Ledger::open(fds.next().ok_or_else(fds_short)?, max_silence)?)) } else { None };
    Ok(Adoption {
        generation: adopt.generation,
        listeners: Vec::new(),
        gro: adopt.gro,
        drain: adopt.drain.into(),
        older_live: adopt.older_live,
        links: adopt.links,
        keys: Arc::new(keys),
        kept,
        ledger,
    })
}

impl Adoption {
    fn add(&mut self, wanted: &[(String, Kind)], adopted: Adopted, fds: Vec<OwnedFd>) -> Result<(), AdoptError> {
        let Adopted { name, kind, address, members } = adopted;
        if !wanted.iter().any(|wanted| (&*wanted.0, wanted.1) == (&*name, kind)) {
            return Err(AdoptError::Unwanted { name, kind });
        }
        let sockets = fds.len();
        let known = self.listeners.iter_mut().position(|listener| listener.name == name);
        let socket = match kind {
            Kind::Quic => {
                let mut members = self.members(&name, &members, fds)?;
                // A long list comes in parts.
                if let Some(Socket::Quic(have)) = known.map(|at| &mut self.listeners[at].socket) {
                    have.append(&mut members);
                    return Ok(());
                }
                Socket::Quic(members)
            }
            Kind::Tcp => Socket::Tcp(one(&name, known, fds, is_tcp_listener, "a listening TCP socket")?.into()),
            Kind::Unix => {
                Socket::Unix(one(&name, known, fds, is_unix_listener, "a listening unix stream socket")?.into())
            }
        };
        if sockets == 0 {
            return Err(AdoptError::Missing { name });
        }
        self.listeners.push(Listener { name, address, socket });
        Ok(())
    }

    fn members(&self, name: &str, numbers: &[u16], fds: Vec<OwnedFd>) -> Result<Vec<Member>, AdoptError> {
        let mut members = Vec::with_capacity(fds.len());
        for (&number, fd) in numbers.iter().zip(fds) {
            let invalid = || AdoptError::Member { name: name.to_owned(), member: number };
            let id = MemberId::new(number).ok_or_else(invalid)?;
            if members.iter().chain(self.quic_members()).any(|have: &Member| have.id == id) {
                return Err(invalid());
            }
            if !is_udp(&fd) {
                return Err(AdoptError::Socket { name: name.to_owned(), expected: "a UDP socket" });
            }
            members.push(Member { id, socket: UdpSocket::from(fd) });
        }
        Ok(members)
    }

    fn quic_members(&self) -> impl Iterator<Item = &Member> {
        self.listeners.iter().flat_map(|listener| match &listener.socket {
            Socket::Quic(members) => &members[..],
            Socket::Tcp(_) | Socket::Unix(_) => &[],
        })
    }
}

impl From<message::DrainSettings> for DrainSettings {
    fn from(settings: message::DrainSettings) -> Self {
        Self {
            timeout: Duration::from_millis(settings.timeout_ms),
            spread: settings.spread_ms.map(Duration::from_millis),
        }
    }
}

/// The one descriptor of a stream listener.
fn one(
    name: &str,
    known: Option<usize>,
    fds: Vec<OwnedFd>,
    check: fn(&OwnedFd) -> bool,
    expected: &'static str,
) -> Result<OwnedFd, AdoptError> {
    let sockets = fds.len() + usize::from(known.is_some());
    match <[OwnedFd; 1]>::try_from(fds) {
        Ok([fd]) if sockets == 1 && check(&fd) => Ok(fd),
        Ok([_]) if sockets == 1 => Err(AdoptError::Socket { name: name.to_owned(), expected }),
        Ok(_) | Err(_) => Err(AdoptError::Sockets { name: name.to_owned(), sockets }),
    }
}

fn is_udp(fd: &OwnedFd) -> bool {
    is_inet(fd) && is_type(fd, SocketType::DGRAM) && sockopt::socket_protocol(fd) == Ok(Some(ipproto::UDP))
}

fn is_tcp_listener(fd: &OwnedFd) -> bool {
    is_inet(fd)
        && is_type(fd, SocketType::STREAM)
        && sockopt::socket_protocol(fd) == Ok(Some(ipproto::TCP))
        && sockopt::socket_acceptconn(fd) == Ok(true)
}

fn is_unix_listener(fd: &OwnedFd) -> bool {
    is_unix(fd) && is_type(fd, SocketType::STREAM) && sockopt::socket_acceptconn(fd) == Ok(true)
}

/// A connected end, as beside `link`.
pub(super) fn is_unix_stream(fd: &OwnedFd) -> bool {
    is_unix(fd) && is_type(fd, SocketType::STREAM) && sockopt::socket_acceptconn(fd) == Ok(false)
}

fn is_inet(fd: &OwnedFd) -> bool {
    matches!(sockopt::socket_domain(fd), Ok(AddressFamily::INET | AddressFamily::INET6))
}

fn is_unix(fd: &OwnedFd) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
}

fn is_type(fd: &OwnedFd, expected: SocketType) -> bool {
    sockopt::socket_type(fd) == Ok(expected)
}
