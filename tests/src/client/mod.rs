//! Clients: handshakes one after the other, echo sessions, and MoQ publishers and subscribers over two QUIC stacks.

pub mod announcements;
pub mod crowd;
pub mod echo;
pub mod flow;
pub mod handshake;
pub mod line;
pub mod media;
pub mod native;
pub mod scrape;
pub mod silent;
pub mod webtransport;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The server name that clients ask for; generated certificates are for it.
pub const SERVER_NAME: &str = "localhost";

/// Where a client on this machine reaches a listener that is bound to `listener`: the loopback address of its family
/// if it is bound to all addresses.
#[must_use]
pub fn reachable(listener: SocketAddr) -> SocketAddr {
    let loopback: IpAddr = if listener.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    SocketAddr::new(if listener.ip().is_unspecified() { loopback } else { listener.ip() }, listener.port())
}

/// The address that a client binds to in order to talk to `server`: any port of the same family.
#[must_use]
pub fn local_for(server: SocketAddr) -> SocketAddr {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, 0)
}
