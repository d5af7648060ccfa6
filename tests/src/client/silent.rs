//! Clients that only listen, like a viewer whose broadcast stands still: they hear of a server's death when somebody tells
//! them, or not before their idle timeout.

use crate::client::echo::Session;
use crate::tls::PATIENT;
use crate::wait::{self, PATIENCE};
use anyhow::{bail, ensure};
use quinn::ConnectionError;
use std::net::SocketAddr;
use std::time::Duration;

/// Longer than any timer of a connection in which nothing is under way (a delayed acknowledgement, a probe timeout).
const QUIET: Duration = Duration::from_millis(500);
/// Without a word, nobody learns anything before [`PATIENT`] has passed.
const WITHIN: Duration = Duration::from_secs(15);
const _: () = assert!(WITHIN.as_secs() * 2 <= PATIENT.as_secs());

/// Echo sessions that have spoken once.
#[derive(Debug)]
pub struct Silent {
    sessions: Vec<Session>,
    /// The datagrams that each had sent when all had become silent.
    sent: Vec<u64>,
}

impl Silent {
    /// Connects so many, each from a port of its own, and waits until they are silent.
    ///
    /// # Errors
    /// One can't connect, or goes on sending.
    pub async fn connect(server: SocketAddr, count: usize) -> anyhow::Result<Self> {
        let mut sessions = Vec::new();
        for _ in 0..count {
            let session = Session::connect_silently(server).await?;
            session.echo(b"here").await?;
            sessions.push(session);
        }
        Self::of(sessions).await
    }

    /// Waits until these are silent.
    ///
    /// # Errors
    /// One goes on sending.
    pub async fn of(sessions: Vec<Session>) -> anyhow::Result<Self> {
        let count = || sessions.iter().map(Session::sent).collect::<Vec<_>>();
        let (mut sent, mut since) = (count(), tokio::time::Instant::now());
        wait::until(PATIENCE, "silence", || {
            let now = count();
            if now != sent {
                (sent, since) = (now, tokio::time::Instant::now());
            }
            Ok(since.elapsed() >= QUIET)
        })
        .await?;
        Ok(Self { sessions, sent })
    }

    /// Waits until every one has been reset, and checks that none has sent anything that a reset could have answered.
    ///
    /// # Errors
    /// One has spoken since, ended otherwise, or not been told long before its idle timeout.
    pub async fn are_told(&self) -> anyhow::Result<()> {
        wait::until(WITHIN, "a reset for every silent client", || all_reset(&self.sessions)).await?;
        for (session, sent) in self.sessions.iter().zip(&self.sent) {
            ensure!(session.sent() == *sent, "it had sent {sent} datagrams, and {} when it was told", session.sent());
        }
        Ok(())
    }

    /// That none of them has ended, and all still work.
    ///
    /// # Errors
    /// One does not.
    pub async fn live_on(&self) -> anyhow::Result<()> {
        for session in &self.sessions {
            session.echo(b"still here").await?;
        }
        Ok(())
    }

    /// They need not keep silent any more.
    #[must_use]
    pub fn into_sessions(self) -> Vec<Session> {
        self.sessions
    }
}

/// Whether every one has been reset; an error for one that has ended otherwise.
///
/// # Errors
/// That.
pub fn all_reset(sessions: &[Session]) -> anyhow::Result<bool> {
    let mut all = true;
    for session in sessions {
        match session.ended() {
            Some(ConnectionError::Reset) => {}
            Some(other) => bail!("ended otherwise: {other}"),
            None => all = false,
        }
    }
    Ok(all)
}
