//! A real `moq-relay` without a supervisor.

use crate::process::{Launch, Process};
use crate::wait::PATIENCE;
use crate::{client, procfs, program};
use anyhow::{Context as _, ensure};
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::Instant;

/// The arguments of a relay that anybody may use, on any port, with a generated certificate.
pub const OPEN: [&str; 6] = ["--listen", "[::]:0", "--listen-tls-generate", "localhost", "--auth-public", "**"];

/// A running relay. Dropping it kills it.
#[derive(Debug)]
pub struct Relay {
    /// Its process.
    pub process: Process,
    /// Where a client on this machine reaches it.
    pub address: SocketAddr,
}

impl Relay {
    /// Starts an [`OPEN`] relay with further `args`, and waits until it serves.
    ///
    /// # Errors
    /// It does not serve within [`PATIENCE`].
    pub async fn start(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> anyhow::Result<Self> {
        Self::of(Launch::new(program::relay()?).args(OPEN).args(args).start()?).await
    }

    /// Waits until a relay that has been started serves.
    ///
    /// # Errors
    /// It does not serve within [`PATIENCE`].
    pub async fn of(process: Process) -> anyhow::Result<Self> {
        let line = process.wait_for_line("listening", PATIENCE).await?;
        let address = address_in(&line).with_context(|| format!("an address in {line:?}"))?;
        Ok(Self { process, address: client::reachable(address) })
    }
}

/// A port that nobody has, for a program that does not say which one it got for 0. It stays free while nobody listens there:
/// the kernel gives it to no client.
///
/// # Errors
/// The system does not say which ports clients get, or none of the others is free.
pub fn lasting_port() -> anyhow::Result<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").context("the range of client ports")?;
    let first: u16 = range.split_ascii_whitespace().next().context("its first port")?.parse()?;
    let any = |port| (Ipv6Addr::UNSPECIFIED, port);
    let free = |port: &u16| UdpSocket::bind(any(*port)).is_ok() && TcpListener::bind(any(*port)).is_ok();
    let mut ports = std::iter::repeat_with(|| rand::random_range(1_024..first)).take(100);
    ports.find(free).context("a free port below the clients'")
}

/// Starts an [`OPEN`] relay of this kind on a port of our choice, and returns as soon as that is bound: its log may say so late.
///
/// # Errors
/// It can't be started, or does not listen within [`PATIENCE`].
pub async fn start_on(program: &Path, port: u16) -> anyhow::Result<Process> {
    let mut args = OPEN.map(str::to_owned);
    args[1] = format!("[::]:{port}");
    let begun = Instant::now();
    let process = Launch::new(program).args(&args).start()?;
    while !procfs::udp_port_is_bound(port)? {
        ensure!(begun.elapsed() < PATIENCE, "{} does not listen; {}", program.display(), process.tail());
        tokio::task::yield_now().await;
    }
    Ok(process)
}

/// The socket address that a log line names.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split([' ', '=', ',', '"']).find_map(|word| word.parse().ok())
}
