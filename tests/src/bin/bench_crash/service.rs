//! What is killed, and what starts it again.

use anyhow::Context as _;
use nix::sys::signal::Signal;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tests::process::{Process, signal_process};
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{program, relay};

/// `RestartSec=` of the unit that moq-relay is packaged with.
const RESTART: Duration = Duration::from_secs(5);

/// A relay that is killed again and again.
pub(crate) enum Service {
    Ours { supervisor: Supervisor, address: SocketAddr },
    Peer { program: PathBuf, address: SocketAddr, process: Process, killed: Instant },
}

impl Service {
    /// Ours, supervised.
    pub(crate) async fn ours() -> anyhow::Result<Self> {
        let setup = Setup::new(program::relay()?)?.flags(["--probation", "0s"]).child(relay::OPEN);
        let supervisor = setup.child(["--runtime-workers", "2"]).serve().await?;
        let address = supervisor.address().await?;
        Ok(Self::Ours { supervisor, address })
    }

    /// Today's.
    pub(crate) async fn peer(program: &Path) -> anyhow::Result<Self> {
        let port = relay::lasting_port()?;
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        let process = relay::start_on(program, port).await?;
        Ok(Self::Peer { program: program.to_owned(), address, process, killed: Instant::now() })
    }

    /// Another one of ours, which has seen no crash yet.
    pub(crate) async fn renew(&mut self) -> anyhow::Result<()> {
        if self.is_ours() {
            *self = Self::ours().await?;
        }
        Ok(())
    }

    pub(crate) const fn is_ours(&self) -> bool {
        matches!(self, Self::Ours { .. })
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Ours { .. } => "ours",
            Self::Peer { .. } => "today's moq-relay",
        }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        match self {
            Self::Ours { address, .. } | Self::Peer { address, .. } => *address,
        }
    }

    pub(crate) fn tail(&self) -> String {
        match self {
            Self::Ours { supervisor, .. } => supervisor.process.tail(),
            Self::Peer { process, .. } => process.tail(),
        }
    }

    /// SIGKILL to the process that serves; returns when.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<Instant> {
        match self {
            Self::Ours { supervisor, .. } => {
                let status = supervisor.wait_for("an active generation", |status| status.active().is_some()).await?;
                let pid = status.active().and_then(|active| active.pid).context("it runs")?;
                let now = Instant::now();
                signal_process(pid, Signal::SIGKILL)?;
                Ok(now)
            }
            Self::Peer { process, killed, .. } => {
                *killed = Instant::now();
                process.signal(Signal::SIGKILL)?;
                Ok(*killed)
            }
        }
    }

    /// Has it running again. The supervisor needs no help; the other is started when its unit would have.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Ours { .. } => Ok(()),
            Self::Peer { program, address, process, killed } => {
                let due = *killed + RESTART;
                wait::until(2 * RESTART, "the restart", || Ok(Instant::now() >= due)).await?;
                process.wait(PATIENCE).await?;
                *process = relay::start_on(program, address.port()).await?;
                Ok(())
            }
        }
    }
}
