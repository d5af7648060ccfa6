//! Sockets of an earlier supervisor process, and of `.socket` units.

use super::bind::local;
use super::group::Group;
use super::listener::{Holding, Listener, ListenerId, Listening, Share};
use super::request::Address;
use super::runs::Run;
use super::table::Table;
use super::unix::UnixSocket;
use crate::state::{FileEntry, HoldingEntry, Inherited, KindEntry, ListenerEntry, RunEntry, SocketsEntry, names};
use protocol::cid::Cipher;
use protocol::message::{Generation, Kind};
use socket2::{Socket, Type};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A listener that can't be used any more, though its sockets stay open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranded {
    /// What it was bound to.
    pub address: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Stranded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, reason } = self;
        write!(
            f,
            "the sockets of {address} can't be handed to new generations, those that have them serve on: {reason}; stop \
             and start the service"
        )
    }
}

impl Table {
    /// What another process needs to go on: the document's part, and every socket by its name.
    #[must_use]
    pub fn save(&self) -> (SocketsEntry, Vec<(String, BorrowedFd<'_>)>) {
        let mut all = Vec::new();
        let mut listeners = Vec::with_capacity(self.listeners.len());
        for (id, listener) in &self.listeners {
            let fds: Vec<BorrowedFd<'_>> = listener.socket.fds();
            let sockets: Vec<String> = (0..fds.len()).map(|position| names::socket(id.get(), position)).collect();
            all.extend(sockets.iter().cloned().zip(fds));
            listeners.push(ListenerEntry {
                id: id.get(),
                kind: listener.kind().into(),
                address: listener.address.to_string(),
                sockets,
                file: listener.socket.file(),
            });
        }
        let holdings = self.all_holdings().map(|(generation, holding)| holding.entry(generation)).collect();
        all.extend(self.stranded.iter().map(|(name, fd)| (name.clone(), fd.as_fd())));
        let stranded = self.stranded.iter().map(|(name, _)| name.clone()).collect();
        (SocketsEntry { gro: self.gro, next: self.next.get(), listeners, holdings, stranded }, all)
    }

    /// The sockets of [`Table::offer`], under names that are no name of ours.
    pub fn offered_sockets(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        let sockets = self.offered.iter().enumerate();
        sockets.map(|(number, (_, _, socket))| (names::offered(number), socket.as_fd()))
    }

    /// The table of which another process has saved this. Takes its sockets out of `fds`.
    ///
    /// Nothing is attached to the groups as far as the table knows; the program that is there goes on until the next
    /// [`Table::steer`]. The second part of the result are listeners that are no more than open sockets.
    #[must_use]
    pub fn restore(cipher: Cipher, saved: &SocketsEntry, fds: &mut Inherited) -> (Self, Vec<Stranded>) {
        let mut table = Self::new(cipher);
        table.gro = saved.gro;
        let mut stranded = Vec::new();
        for entry in &saved.listeners {
            let named = |name: &String| fds.one(name).map(|fd| (name.clone(), fd));
            let sockets: Vec<Option<(String, OwnedFd)>> = entry.sockets.iter().map(named).collect();
            let id = ListenerId::new(entry.id);
            table.next = table.next.max(id.next());
            match listener(entry, sockets) {
                Ok(Some(listener)) => drop(table.listeners.insert(id, listener)),
                // Of a later version: nobody here could serve it.
                Ok(None) => {}
                Err(Unusable { reason, sockets }) => {
                    // To close one of a group would move the others: the program that is attached would miss.
                    table.stranded.extend(sockets);
                    stranded.push(Stranded { address: entry.address.clone(), reason });
                }
            }
        }
        table.next = table.next.max(ListenerId::new(saved.next));
        table.stranded.extend(saved.stranded.iter().filter_map(|name| Some((name.clone(), fds.one(name)?))));
        for entry in &saved.holdings {
            if let Some(holding) = table.holding(entry) {
                table.holdings.entry(entry.generation).or_default().push(holding);
            }
        }
        (table, stranded)
    }

    /// Keeps a listening TCP or unix socket for the listener that will want its address. It stays open as long as the
    /// table, because who made it keeps it open as well. Says where it is.
    ///
    /// # Errors
    /// What it is instead, in one line.
    pub fn offer(&mut self, fd: OwnedFd) -> Result<String, String> {
        let socket = Socket::from(fd);
        let unusable = |what: &str| format!("a socket of the service manager is {what}: not used");
        if !matches!(socket.r#type(), Ok(Type::STREAM)) || !matches!(socket.is_listener(), Ok(true)) {
            return Err(unusable("no listening stream socket (QUIC sockets can't come from a .socket unit)"));
        }
        let (kind, address) = match local(&socket) {
            Ok(address) => (Kind::Tcp, Address::Inet(address)),
            Err(_) => match unix_path(&socket) {
                Some(path) => (Kind::Unix, Address::Unix(path)),
                None => return Err(unusable("at no address that a relay can ask for")),
            },
        };
        socket.set_nonblocking(true).map_err(|error| unusable(&error.to_string()))?;
        let text = format!("{kind} {address}");
        self.offered.push((kind, address, socket));
        Ok(text)
    }

    /// A duplicate of the offered socket at this address.
    pub(super) fn offered(&self, kind: Kind, address: &Address) -> Option<Socket> {
        let found = self.offered.iter().find(|(of, at, _)| *of == kind && at == address);
        found.and_then(|(_, _, socket)| socket.try_clone().ok())
    }

    /// Who has sockets, oldest first.
    #[must_use]
    pub fn holders(&self) -> Vec<Generation> {
        self.holdings.keys().copied().collect()
    }

    fn holding(&self, entry: &HoldingEntry) -> Option<Holding> {
        let listener = ListenerId::new(entry.listener);
        let found = self.listeners.get(&listener)?;
        let share = match &found.socket {
            Listening::Quic(group) => {
                let run = |run: &RunEntry| {
                    let end = run.position.checked_add(run.len)?;
                    (run.len > 0 && end <= group.len()).then_some(Run { position: run.position, len: run.len })
                };
                Share::Members { first: entry.first, runs: entry.runs.iter().map(run).collect::<Option<_>>()? }
            }
            Listening::Tcp(_) | Listening::Unix(_) => Share::Whole { mode: entry.mode },
        };
        let requested = address(found.kind(), &entry.requested)?;
        Some(Holding { listener, name: entry.name.clone(), requested, share })
    }
}

impl Holding {
    fn entry(&self, generation: Generation) -> HoldingEntry {
        let (first, runs) = match &self.share {
            Share::Members { first, runs } => {
                let run = |run: &Run| RunEntry { position: run.position, len: run.len };
                (*first, runs.iter().map(run).collect())
            }
            Share::Whole { .. } => (0, Vec::new()),
        };
        HoldingEntry {
            generation,
            listener: self.listener.get(),
            name: self.name.clone(),
            requested: self.requested.to_string(),
            first,
            runs,
            mode: self.share.mode(),
        }
    }
}

/// Why a listener can't be used, with those of its sockets that there are.
struct Unusable {
    reason: String,
    sockets: Vec<(String, OwnedFd)>,
}

fn listener(entry: &ListenerEntry, sockets: Vec<Option<(String, OwnedFd)>>) -> Result<Option<Listener>, Unusable> {
    let kind = match entry.kind {
        KindEntry::Quic => Kind::Quic,
        KindEntry::Tcp => Kind::Tcp,
        KindEntry::Unix => Kind::Unix,
        KindEntry::Unknown => return Ok(None),
    };
    let wanted = sockets.len();
    let sockets: Vec<(String, OwnedFd)> = sockets.into_iter().flatten().collect();
    let check = || {
        if sockets.len() < wanted || wanted == 0 {
            let missing = wanted - sockets.len();
            return Err(format!("{missing} of {wanted} are missing (is FileDescriptorStoreMax= too small?)"));
        }
        let address = address(kind, &entry.address).ok_or_else(|| format!("{:?} is no address", entry.address))?;
        let mut files = BTreeSet::new();
        for (_, socket) in &sockets {
            let strange = |error: io::Error| format!("one of them is none: {error}");
            is_bound(socket, kind, &address).map_err(strange)?;
            let file = nix::sys::stat::fstat(socket).map_err(|errno| strange(errno.into()))?.st_ino;
            if !files.insert(file) {
                return Err("two of them are the same".to_owned());
            }
        }
        Ok(address)
    };
    let address = match check() {
        Ok(address) => address,
        Err(reason) => return Err(Unusable { reason, sockets }),
    };
    let mut sockets = sockets.into_iter().map(|(_, socket)| Socket::from(socket));
    let socket = match (kind, &address) {
        (Kind::Quic, Address::Inet(bound)) => Some(Listening::Quic(Group::restored(*bound, sockets.collect()))),
        (Kind::Tcp, _) => sockets.next().map(Listening::Tcp),
        (Kind::Unix, Address::Unix(path)) => {
            sockets.next().map(|socket| Listening::Unix(UnixSocket::restored(socket, path.clone(), entry.file)))
        }
        (Kind::Quic, Address::Unix(_)) | (Kind::Unix, Address::Inet(_)) => None,
    };
    Ok(socket.map(|socket| Listener { address, socket }))
}

/// The address in the form of its kind, as [`Address`] shows it.
fn address(kind: Kind, text: &str) -> Option<Address> {
    match kind {
        Kind::Quic | Kind::Tcp => text.parse().ok().map(Address::Inet),
        Kind::Unix => Some(Address::Unix(PathBuf::from(text))),
    }
}

/// Whether the socket is of this kind and bound there.
fn is_bound(fd: &OwnedFd, kind: Kind, address: &Address) -> io::Result<()> {
    let socket = socket2::SockRef::from(fd);
    let wanted = if kind == Kind::Quic { Type::DGRAM } else { Type::STREAM };
    if socket.r#type()? != wanted {
        return Err(io::Error::other("another type of socket"));
    }
    let bound = match socket.local_addr()? {
        at if at.is_unix() => at.as_pathname().map(|path| Address::Unix(path.to_owned())),
        at => at.as_socket().map(Address::Inet),
    };
    if bound.as_ref() == Some(address) { Ok(()) } else { Err(io::Error::other("bound somewhere else")) }
}

fn unix_path(socket: &Socket) -> Option<PathBuf> {
    socket.local_addr().ok()?.as_pathname().map(Path::to_owned)
}

impl Listening {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Quic(group) => group.members(Run { position: 0, len: group.len() }).collect(),
            Self::Tcp(socket) => vec![socket.as_fd()],
            Self::Unix(socket) => vec![socket.socket().as_fd()],
        }
    }

    fn file(&self) -> Option<FileEntry> {
        match self {
            Self::Unix(socket) => socket.file(),
            Self::Quic(_) | Self::Tcp(_) => None,
        }
    }
}
