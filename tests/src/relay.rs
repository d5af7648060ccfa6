//! A real `moq-relay` without a supervisor.

use crate::process::{Launch, Process};
use crate::wait::PATIENCE;
use crate::{client, procfs, program};
use anyhow::{Context as _, ensure};
use std::ffi::OsStr;
use std::net::SocketAddr;
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
