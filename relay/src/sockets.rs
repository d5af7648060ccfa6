//! The sockets to serve and what comes with them: adopted from a supervisor, or bound here.

use crate::config::{Config, UnixListener};
use anyhow::Context;
use protocol::child::{Listener, Member, Receiver, Sender, Socket, Unadopted};
use protocol::cid::{Cipher, MemberId};
use protocol::keys::{BootId, ChildKeys, Secret};
use protocol::message::{Generation, Hello, Kind, VersionRange, Wanted};
use protocol::quinn::Endpoints;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use supervisor::core::event::Steering;
use supervisor::sockets::{Granted, Handed, Table};
use zeroize::Zeroizing;

/// The permission bits of the unix socket: whoever reaches its directory may connect, and the allow list decides.
const UNIX_MODE: u32 = 0o666;

/// The names of the listeners towards the supervisor.
const QUIC: &str = "quic";
pub(crate) const TCP: &str = "tcp";
pub(crate) const UNIX: &str = "unix";
pub(crate) const INTERNAL: &str = "internal";

/// The sockets of this process.
pub(crate) struct Sockets {
    /// Which generation this is under a supervisor.
    pub(crate) generation: Option<Generation>,
    /// Makes the endpoints on the QUIC members.
    pub(crate) endpoints: Endpoints,
    /// Its keys.
    pub(crate) keys: Arc<ChildKeys>,
    /// The listeners, in the order of the settings.
    pub(crate) listeners: Vec<Listener>,
    /// Secrets of earlier generations.
    pub(crate) kept: BTreeMap<String, Zeroizing<Vec<u8>>>,
    /// How long a supervisor wants GOAWAYs to be spread over.
    pub(crate) spread: Option<Duration>,
    /// So many links with older generations are on their way.
    pub(crate) links: u16,
    /// Who owns the sockets, when it is this process.
    pub(crate) own: Option<Own>,
}

/// The sockets of a relay that runs alone. It owns and steers them by the very code of the supervisor: a group per
/// address that nobody else may join, and connection IDs that lead each packet to its worker.
#[derive(Debug)]
pub(crate) struct Own(Table);

impl Drop for Own {
    /// Closes them, and removes the unix socket's file unless somebody else has put another there.
    fn drop(&mut self) {
        for warning in self.0.retire(ALONE) {
            tracing::warn!("{warning}");
        }
    }
}

impl Sockets {
    /// Binds what the settings say. Nobody else may serve there.
    ///
    /// # Errors
    /// An address is held or can't be bound.
    pub(crate) fn bind(config: &Config) -> anyhow::Result<Self> {
        let keys = Arc::new(Secret::random()?.child_keys(&BootId::random()?, ALONE));
        let mut own = Own(Table::new(Cipher::new(&keys.cid)));
        own.0.gro(true)?;
        let wanted = wanted(config)?;
        let Granted { listeners, warnings } = own.0.grant(ALONE, &wanted, None, false)?;
        for warning in warnings {
            tracing::debug!("{warning}");
        }
        let listeners = listeners.into_iter().map(taken).collect::<anyhow::Result<_>>()?;
        own.0.steer(&Steering { active: ALONE, live: vec![ALONE], canary: None })?;
        Ok(Self {
            generation: None,
            endpoints: Endpoints::with_keys(ALONE, keys.clone(), true),
            keys,
            listeners,
            kept: BTreeMap::new(),
            spread: None,
            links: 0,
            own: Some(own),
        })
    }

    /// Asks the supervisor for what the settings say.
    ///
    /// # Errors
    /// It refuses, speaks no common version, or hands over something else.
    pub(crate) async fn adopt(channel: Unadopted, config: &Config) -> anyhow::Result<(Self, Sender, Receiver)> {
        let hello = Hello {
            protocol: VersionRange::OURS,
            program: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            listeners: wanted(config)?,
            drain_timeout_ms: Some(millis(config.drain_timeout)),
            idle_timeout_ms: config.quic.idle_timeout.map(millis),
            ledger: config.listen.quic.is_some(),
        };
        let (supervisor, adoption) = channel.hello(hello).await.context("the supervisor did not adopt this relay")?;
        let sockets = Self {
            generation: Some(adoption.generation),
            endpoints: Endpoints::new(&adoption),
            keys: adoption.keys,
            listeners: adoption.listeners,
            kept: adoption.kept,
            spread: adoption.drain.spread,
            links: adoption.links,
            own: None,
        };
        let (sender, receiver) = supervisor.split();
        Ok((sockets, sender, receiver))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duplicate of what the table has.
fn taken(Handed { socket, fds }: Handed<'_>) -> anyhow::Result<Listener> {
    let mut fds = fds.into_iter().map(|fd| fd.try_clone_to_owned());
    let mut one = || fds.next().transpose()?.context("the listener has no socket");
    let taken = match socket.kind {
        Kind::Tcp => Socket::Tcp(one()?.into()),
        Kind::Unix => Socket::Unix(one()?.into()),
        Kind::Quic => {
            let members = socket.members.iter().filter_map(|number| MemberId::new(*number));
            let member = |(id, fd): (MemberId, std::io::Result<OwnedFd>)| Ok(Member { id, socket: fd?.into() });
            Socket::Quic(members.zip(fds).map(member).collect::<anyhow::Result<_>>()?)
        }
    };
    Ok(Listener { name: socket.name, address: socket.address, socket: taken })
}

/// The generation number of a relay that runs alone: there is no other to tell it from.
pub(crate) const ALONE: Generation = Generation(1);

/// What to ask the supervisor for. Names are looked up here, once: its addresses are numeric.
fn wanted(config: &Config) -> anyhow::Result<Vec<Wanted>> {
    let listen = &config.listen;
    let mut wanted = Vec::new();
    if let Some(quic) = &listen.quic {
        let address = quic.bind.resolve().with_context(|| format!("can't look up {}", quic.bind))?;
        wanted.push(one(QUIC, Kind::Quic, address.to_string(), config.runtime.workers.get(), None));
    }
    if let Some(address) = listen.tcp {
        wanted.push(one(TCP, Kind::Tcp, address.to_string(), 1, None));
    }
    if let Some(UnixListener { path, .. }) = &listen.unix {
        let path = path.to_str().with_context(|| format!("the socket path {} is not UTF-8", path.display()))?;
        wanted.push(one(UNIX, Kind::Unix, path.to_owned(), 1, Some(UNIX_MODE)));
    }
    if let Some(address) = config.internal {
        wanted.push(one(INTERNAL, Kind::Tcp, address.to_string(), 1, None));
    }
    Ok(wanted)
}

fn one(name: &str, kind: Kind, address: String, members: u16, mode: Option<u32>) -> Wanted {
    Wanted { name: name.to_owned(), kind, address, members, mode }
}
