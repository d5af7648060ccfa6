//! Clients that use a service all the time, and count what they lose.

use crate::client::echo::{Habit, Session, Steady};
use crate::client::handshake::Load;
use crate::systemd::Service;
use crate::wait::{self, PATIENCE};
use anyhow::ensure;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Fresh handshakes a second, half of them over IPv4.
pub const HANDSHAKES: u32 = 50;
/// Sessions, half of them over IPv4.
pub const SESSIONS: usize = 20;
/// From one echo of a session to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// Handshakes that must be completed before a fault, and again after it.
const ENOUGH: usize = 20;

/// What clients lost.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Handshakes that failed, and why.
    pub handshakes: Vec<String>,
    /// Sessions that ended, and why.
    pub sessions: Vec<String>,
    /// Handshakes that were completed.
    pub completed: usize,
}

impl Losses {
    /// True if neither a handshake nor a session was lost.
    #[must_use]
    pub fn none(&self) -> bool {
        self.handshakes.is_empty() && self.sessions.is_empty()
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, lost) = (self.handshakes.len(), self.sessions.len());
        write!(f, "{failed} handshakes failed, {} succeeded, {lost} sessions lost", self.completed)?;
        let first = self.handshakes.first().or_else(|| self.sessions.first());
        first.map_or(Ok(()), |first| write!(f, "; first: {first}"))
    }
}

/// [`SESSIONS`] echo sessions and [`HANDSHAKES`] handshakes a second.
#[derive(Debug)]
pub struct Clients {
    load: Load,
    sessions: Vec<Steady>,
    /// The sockets of the service when they began, by what nobody else gets; none: nobody asked.
    sockets: BTreeSet<String>,
}

impl Clients {
    /// Begins to use the echo server at `port`, which listens on `[::]`, and returns when all is under way.
    ///
    /// # Errors
    /// A session can't begin.
    pub async fn start(port: u16) -> anyhow::Result<Self> {
        let servers: [SocketAddr; 2] = [(Ipv6Addr::LOCALHOST, port).into(), (Ipv4Addr::LOCALHOST, port).into()];
        let habit = Habit { pause: PAUSE, size: 100, rebind: false };
        let mut sessions = Vec::new();
        for server in servers.into_iter().cycle().take(SESSIONS) {
            sessions.push(Steady::start(Session::connect(server).await?, habit));
        }
        let clients = Self { load: Load::start(&servers, &[], HANDSHAKES)?, sessions, sockets: BTreeSet::new() };
        clients.go_on().await?;
        Ok(clients)
    }

    /// [`Self::start`] at the port of this service, whose sockets [`Self::unharmed_by`] compares.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn of(service: &Service<'_>) -> anyhow::Result<Self> {
        let clients = Self::start(Service::PORT).await?;
        Ok(Self { sockets: service.cookies().await?, ..clients })
    }

    /// Handshakes alone: for a program that can't echo.
    ///
    /// # Errors
    /// As [`Load::start`].
    pub async fn handshakes(port: u16, alpns: &[&str]) -> anyhow::Result<Self> {
        let servers: [SocketAddr; 2] = [(Ipv6Addr::LOCALHOST, port).into(), (Ipv4Addr::LOCALHOST, port).into()];
        let load = Load::start(&servers, alpns, HANDSHAKES)?;
        let clients = Self { load, sessions: Vec::new(), sockets: BTreeSet::new() };
        clients.go_on().await?;
        Ok(clients)
    }

    /// What was lost so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let handshakes = self.load.so_far();
        Losses {
            handshakes: handshakes.failed.iter().map(ToString::to_string).collect(),
            sessions: self.sessions.iter().filter_map(|session| session.report().failure).collect(),
            completed: handshakes.completed.len(),
        }
    }

    /// Waits until every session has echoed again and some more handshakes have been completed.
    ///
    /// # Errors
    /// Something was lost, or does not come.
    pub async fn go_on(&self) -> anyhow::Result<()> {
        let echoes: Vec<u64> = self.sessions.iter().map(|session| session.report().echoes).collect();
        let before = self.load.so_far().completed.len();
        wait::until(PATIENCE, "further echoes and handshakes", || {
            let losses = self.losses();
            ensure!(losses.none(), "{losses}");
            let echoed = self.sessions.iter().zip(&echoes).all(|(session, before)| session.report().echoes > *before);
            Ok(echoed && losses.completed >= before + ENOUGH)
        })
        .await
    }

    /// Waits until something was lost.
    ///
    /// # Errors
    /// Nothing was, within [`PATIENCE`].
    pub async fn lose(&self) -> anyhow::Result<()> {
        wait::until(PATIENCE, "the loss of a handshake or session", || Ok(!self.losses().none())).await
    }

    /// The end: what was lost in all.
    ///
    /// # Errors
    /// The load itself failed.
    pub async fn stop(self) -> anyhow::Result<Losses> {
        let mut losses = self.losses();
        let handshakes = self.load.stop().await?;
        losses.completed = handshakes.completed.len();
        losses.handshakes = handshakes.failed.iter().map(ToString::to_string).collect();
        Ok(losses)
    }

    /// The end: nothing was lost, and every socket that the service had is the same one (SO_COOKIE). It may have more.
    ///
    /// # Errors
    /// Something was, or a socket is another one.
    pub async fn unharmed_by(self, service: &Service<'_>) -> anyhow::Result<()> {
        ensure!(!self.sockets.is_empty(), "nobody has looked at the sockets before");
        let now = service.cookies().await?;
        let lost: Vec<_> = self.sockets.difference(&now).collect();
        ensure!(lost.is_empty(), "sockets were closed: {lost:?}");
        self.unharmed().await
    }

    /// The end: nothing was lost.
    ///
    /// # Errors
    /// Something was.
    pub async fn unharmed(self) -> anyhow::Result<()> {
        self.go_on().await?;
        let losses = self.stop().await?;
        ensure!(losses.none(), "{losses}");
        Ok(())
    }
}
