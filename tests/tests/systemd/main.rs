//! The shipped units under a real systemd: what an operator does, and what clients notice of it (nothing).

mod crash;
mod journal;
mod lines;
mod migration;
mod notify;
mod reload;
mod restart;
mod sockets;
mod start;
mod stop;
mod store;
mod storm;
mod units;
mod user;
mod watchdog;

use std::net::{Ipv6Addr, SocketAddr};
use tests::systemd::Service;

/// What every relay speaks, and the echo server not: WebTransport.
const MOQ: &str = "h3";

/// Where the service is reached.
fn server() -> SocketAddr {
    (Ipv6Addr::LOCALHOST, Service::PORT).into()
}
