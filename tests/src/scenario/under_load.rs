//! A supervised echo server that clients use all the time, so that whatever is done to it can be shown to cost nothing.

use crate::Replaceable;
use crate::client::echo::{Habit, Session, Steady};
use crate::client::handshake::Load;
use crate::supervisor::{Setup, Supervisor};
use crate::wait::{self, PATIENCE};
use anyhow::{Context as _, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Fresh handshakes a second, half of them over IPv4.
pub const HANDSHAKES: u32 = 50;
/// Sessions of the first generation.
pub const SESSIONS: usize = 20;
/// From one echo of a session to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// Handshakes that must have been completed before a fault, and again after it.
const ENOUGH: usize = 20;

/// A supervisor whose first generation, an echo server, has [`SESSIONS`] sessions, and which gets [`HANDSHAKES`] fresh
/// handshakes a second. [`UnderLoad::unharmed`] says whether any of it was lost.
#[derive(Debug)]
pub struct UnderLoad {
    /// The supervisor.
    pub supervisor: Supervisor,
    /// Its program on disk.
    pub program: Replaceable,
    /// Where its clients reach it.
    pub server: SocketAddr,
    /// The process of the first generation.
    pub first: u32,
    load: Load,
    sessions: Vec<Steady>,
}

impl UnderLoad {
    /// Starts everything, and returns when it is under way.
    ///
    /// # Errors
    /// The service or a client can't start.
    pub async fn start(flags: &[&str]) -> anyhow::Result<Self> {
        let setup = Setup::new("program")?.flags(flags);
        let program = Replaceable::new(setup.folder());
        program.becomes_echo()?;
        let exec = program.path().to_owned();
        Self::of(setup.exec(exec), program).await
    }

    /// The same for an arrangement whose program is an echo server that listens on `[::]`.
    ///
    /// # Errors
    /// As [`UnderLoad::start`].
    pub async fn of(setup: Setup, program: Replaceable) -> anyhow::Result<Self> {
        let supervisor = setup.serve().await?;
        let six = supervisor.address().await?;
        let four = SocketAddr::from((Ipv4Addr::LOCALHOST, six.port()));
        let habit = Habit { pause: PAUSE, size: 100, rebind: false };
        let mut sessions = Vec::new();
        for server in [six, four].into_iter().cycle().take(SESSIONS) {
            sessions.push(Steady::start(Session::connect(server).await?, habit));
        }
        let status = supervisor.wait_for("all sessions", |status| status.sessions(1) >= SESSIONS as u64).await?;
        let first = status.generation(1).and_then(|first| first.pid).context("the first generation has a process")?;
        let load = Load::start(&[six, four], &[], HANDSHAKES)?;
        let under = Self { supervisor, program, server: six, first, load, sessions };
        under.goes_on().await?;
        Ok(under)
    }

    /// Waits until every session has echoed again and some more handshakes have been completed.
    ///
    /// # Errors
    /// A session or a handshake has failed, or does not come.
    pub async fn goes_on(&self) -> anyhow::Result<()> {
        let echoes: Vec<u64> = self.sessions.iter().map(|session| session.report().echoes).collect();
        let completed = self.load.so_far().completed.len();
        wait::until(PATIENCE, "further echoes and handshakes", || {
            let handshakes = self.load.so_far();
            ensure!(handshakes.failed.is_empty(), "handshakes failed: {:?}", handshakes.failed);
            let mut all = handshakes.completed.len() >= completed + ENOUGH;
            for (session, before) in self.sessions.iter().zip(&echoes) {
                let report = session.report();
                ensure!(report.failure.is_none(), "a session failed: {report:?}");
                all &= report.echoes > *before;
            }
            Ok(all)
        })
        .await
        .with_context(|| self.supervisor.process.tail())
    }

    /// The end: no handshake has failed, and every session is still served by the first generation.
    ///
    /// # Errors
    /// Something was lost.
    pub async fn unharmed(self) -> anyhow::Result<Supervisor> {
        self.goes_on().await?;
        let handshakes = self.load.stop().await?;
        ensure!(handshakes.failed.is_empty(), "handshakes failed: {:?}", handshakes.failed);
        let served = self
            .supervisor
            .wait_for("exactly its own sessions in the first generation", |status| {
                status.sessions(1) == SESSIONS as u64
            })
            .await?;
        ensure!(served.generation(1).and_then(|first| first.pid) == Some(self.first), "another process: {served:?}");
        let foreign: u64 = served.generations.iter().map(|generation| generation.foreign).sum();
        ensure!(foreign == 0, "packets went astray: {served:?}");
        for session in self.sessions {
            session.stop().await?;
        }
        Ok(self.supervisor)
    }
}
