//! The validated settings, with real types: what the rest of the relay reads.

use crate::cluster::hop;
use crate::cluster::peer::Peer;
use crate::reconnect;
use moq_net::origin::HopLimit;
use moq_net::{PathOwned, Patterns, Versions};
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

/// Everything the relay was told, checked: flag over environment over file over default.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen and how to be trusted.
    pub listen: Listen,
    /// QUIC transport tuning.
    pub quic: Quic,
    /// How other relays are dialed.
    pub connect: Connect,
    /// Which node of a cluster this is, and which are its peers.
    pub cluster: Cluster,
    /// What an anonymous session may do.
    pub auth: Auth,
    /// How much of what passes is kept.
    pub cache: Cache,
    /// How work is laid out over threads.
    pub runtime: Runtime,
    /// The operators' listener: plain HTTP.
    pub internal: Option<SocketAddr>,
    /// What is published about the node.
    pub stats: Stats,
    /// What is logged.
    pub log: Log,
    /// How long sessions may stay after a stop: from the first GOAWAY to the last forced close. Zero: they are closed
    /// at once, without a GOAWAY. A supervisor's `drain` message goes before this.
    pub drain_timeout: Duration,
    /// How long the GOAWAYs of a drain are spread over; `None`: 1 000 a second. At most 80 % of the drain timeout is used.
    pub drain_spread: Option<Duration>,
}

/// The accepting side.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The QUIC listener; `None` when only stream listeners are configured.
    pub quic: Option<QuicListener>,
    /// The plaintext qmux TCP listener.
    pub tcp: Option<SocketAddr>,
    /// The qmux unix-socket listener.
    pub unix: Option<UnixListener>,
    /// The protocol versions offered, the most preferred first.
    pub versions: Versions,
    /// From the first packet of a connection to the end of its MoQ SETUP; `None`: for ever.
    pub timeout: Option<Duration>,
}

/// The QUIC listener: address, certificates, preferred addresses.
#[derive(Clone, Debug)]
pub struct QuicListener {
    /// Where to bind, UDP.
    pub bind: Bind,
    /// The certificates to serve.
    pub tls: Tls,
    /// The IPv4 address that clients are asked to move to after the handshake (RFC 9000 §9.6).
    pub preferred_v4: Option<SocketAddrV4>,
    /// The same for IPv6.
    pub preferred_v6: Option<SocketAddrV6>,
}

/// A listen address: an IP address and port, or a name to look up when the relay binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// An address.
    Addr(SocketAddr),
    /// A host name and a port.
    Host(String, u16),
}

impl Bind {
    /// The address to bind: the first that the name resolves to. Blocks for the time of the look-up.
    ///
    /// # Errors
    /// The look-up failed, or found nothing.
    pub fn resolve(&self) -> std::io::Result<SocketAddr> {
        match self {
            Self::Addr(address) => Ok(*address),
            Self::Host(host, port) => {
                let mut found = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), *port))?;
                found.next().ok_or_else(|| std::io::Error::other(format!("{host} has no address")))
            }
        }
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(address) => address.fmt(f),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// What the relay presents to clients, and whose certificates it accepts from them.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificate chains and keys from PEM files; the first is served to a client whose SNI none of them covers.
    pub pairs: Vec<PairFiles>,
    /// Host names of a self-signed certificate made at start; empty: none. Never empty together with `pairs`.
    pub generate: Vec<String>,
    /// PEM files of the authorities that client certificates must chain to; empty: none is asked for. When set, TLS
    /// resumption is off.
    pub roots: Vec<PathBuf>,
}

/// A certificate chain and its key, each in a PEM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFiles {
    /// The chain, leaf first.
    pub cert: PathBuf,
    /// The private key of the leaf.
    pub key: PathBuf,
}

/// The unix-socket listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixListener {
    /// The socket's path; made absolute against the working directory.
    pub path: PathBuf,
    /// Who may connect.
    pub allow: UnixAllow,
}

/// Peer credentials (`SO_PEERCRED`, unix(7)) that may connect. Each list that is not empty must contain the peer's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnixAllow {
    /// User ids.
    pub uid: Vec<u32>,
    /// Group ids.
    pub gid: Vec<u32>,
    /// Process ids.
    pub pid: Vec<i32>,
}

/// QUIC transport settings. Windows are bytes; `None` leaves quinn's default.
#[derive(Clone, Debug)]
pub struct Quic {
    /// Most concurrent streams a peer may open, of each direction.
    pub max_streams: u64,
    /// Whether sends are batched by UDP segmentation offload.
    pub gso: bool,
    /// Silence after which a connection is dropped; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// Interval of keep-alive pings; `None`: none are sent.
    pub keep_alive: Option<Duration>,
    /// Whether the path MTU is probed for.
    pub mtu_discovery: bool,
    /// The congestion controller.
    pub congestion_control: CongestionControl,
    /// Unread data of one connection, over all its streams.
    pub receive_window: u64,
    /// Unread data of one stream.
    pub stream_receive_window: Option<u64>,
    /// Unacknowledged data of one connection.
    pub send_window: Option<u64>,
}

/// How the send rate is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// By loss: CUBIC.
    Loss,
    /// By delay: BBR.
    Delay,
}

/// The dialing side.
#[derive(Clone, Debug)]
pub struct Connect {
    /// Where to dial from, UDP; `None`: any address and port. The port is 0 when there are peers.
    pub bind: Option<SocketAddr>,
    /// How long the dial to one address of a name is alone.
    pub race: Duration,
    /// From the look-up of a name to the end of the MoQ SETUP; `None`: for ever.
    pub timeout: Option<Duration>,
    /// The protocol versions offered, the most preferred first.
    pub versions: Versions,
    /// Who is trusted.
    pub tls: ConnectTls,
    /// The pace of dials, and what is done about a restart.
    pub reconnect: reconnect::Settings,
    /// Which redirects are followed.
    pub redirect: reconnect::Redirect,
}

/// Whom the dialing side trusts, and what it presents. No setting contradicts another.
#[derive(Clone, Debug)]
pub struct ConnectTls {
    /// PEM files of authorities.
    pub roots: Vec<PathBuf>,
    /// Whether the system's authorities are trusted; `None`: without other ones.
    pub system_roots: Option<bool>,
    /// SHA-256 of the certificates that are trusted whoever issued them, in hexadecimal.
    pub fingerprints: Vec<String>,
    /// The certificate that is presented.
    pub identity: Option<PairFiles>,
    /// Whether any certificate is trusted.
    pub insecure: bool,
    /// The name to ask for instead of the URL's host.
    pub host_name: Option<String>,
}

/// This node in a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// What its hop ids are derived from; `None`: they are random.
    pub id: Option<hop::Base>,
    /// The longest hop chain of a route.
    pub max_hops: HopLimit,
    /// The relays to dial, each once, without this one.
    pub peers: Vec<Peer>,
    /// The file of the token for peers without their own, and from peers.
    pub token: Option<PathBuf>,
}

/// What any session may do, by patterns over broadcast paths from the root.
#[derive(Clone, Debug)]
pub struct Auth {
    /// What it may publish.
    pub publish: Patterns,
    /// What it may subscribe to.
    pub subscribe: Patterns,
}

/// The group cache. See [`crate::cache`].
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// Bytes that the cache converges to; `None`: unbounded.
    pub capacity: Option<Size>,
    /// Memory that is to stay available on the machine; the cache shrinks for it.
    pub headroom: Option<Size>,
    /// How long a group that is not a track's latest is kept unread; `None`: 30 s, and each track's own retention.
    pub duration: Option<Duration>,
}

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// In bytes.
    Bytes(u64),
    /// In percent of the memory that this process can use; above 0, at most 100.
    Percent(f64),
}

/// Threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Workers: one thread, endpoint and socket each; at most [`super::MAX_WORKERS`].
    pub workers: NonZeroU16,
    /// Whether each worker is pinned to a core.
    pub pin: bool,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The least severe level that is logged.
    pub level: tracing::Level,
    /// The value of `RUST_LOG`, which overrides `level` target by target; checked.
    pub directives: Option<String>,
}

/// Statistics of the node, as a broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Publish them.
    pub enabled: bool,
    /// The path below which they are published.
    pub prefix: PathOwned,
    /// How often.
    pub interval: Duration,
    /// The name of the node.
    pub node: Option<PathOwned>,
}
