//! A real `moq-relay` without a supervisor.

use crate::process::{Launch, Process};
use crate::wait::PATIENCE;
use crate::{client, program};
use anyhow::Context as _;
use std::ffi::OsStr;
use std::net::SocketAddr;

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

/// The socket address that a log line names.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split([' ', '=', ',', '"']).find_map(|word| word.parse().ok())
}
