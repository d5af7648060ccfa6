//! What clients are told of a broadcast while generations overlap: that it is there once, that it is gone once.

use crate::clients::{RATE, Staying, supervised};
use anyhow::Context as _;
use moq_tokio::Restart;
use nix::sys::signal::Signal;
use std::net::SocketAddr;
use tests::client::announcements::{Announcements, Told};
use tests::client::media::{self, Publisher};
use tests::client::native::{self, Scheme};
use tests::client::webtransport::{Media, Session};
use tests::process::signal_process;
use tests::supervisor::Supervisor;
use tests::wait::PATIENCE;

/// The broadcast.
const PATH: &str = "lasting";

/// Somebody who listens for the broadcast in one session, and ignores any GOAWAY.
struct Listener {
    announcements: Announcements,
    _session: Session,
}

impl Listener {
    async fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let sink = media::origin();
        let announcements = Announcements::of(&sink, PATH);
        Ok(Self { announcements, _session: Session::connect(server, &Media::subscribe(&sink)).await? })
    }
}

/// Each of them is told that, and nothing else.
async fn are_told(listeners: &[Listener], expected: &[Told]) -> anyhow::Result<()> {
    for (number, listener) in (1..).zip(listeners) {
        let told = listener.announcements.are(expected, PATIENCE).await;
        told.with_context(|| format!("listener {number} of {}", listeners.len()))?;
    }
    Ok(())
}

/// Three generations with a listener each, and a publisher at the first one that stays there, although it has been told to go.
async fn three_generations() -> anyhow::Result<(Supervisor, Staying, Vec<Listener>)> {
    let supervisor = supervised(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    let publisher = Staying::publish(server, PATH).await?;
    let mut listeners = vec![Listener::start(server).await?];
    are_told(&listeners, &[Told::Announced]).await?;
    for _ in 2..=3 {
        supervisor.upgrade().await?;
        listeners.push(Listener::start(server).await?);
        are_told(&listeners, &[Told::Announced]).await?;
    }
    publisher.told_to_go().await?;
    let status = supervisor
        .wait_for("a session for each client", |status| {
            [1, 2, 3].map(|generation| status.sessions(generation)) == [2, 1, 1]
        })
        .await?;
    anyhow::ensure!(status.generations.len() == 3, "{status:?}");
    Ok((supervisor, publisher, listeners))
}

/// Guards players, which take a withdrawal for the end and tear down what they show: there are two ways to each broadcast,
/// and the one that is lost last must not look like a new beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_stays_is_announced_once_and_withdrawn_once() -> anyhow::Result<()> {
    let (supervisor, publisher, listeners) = three_generations().await?;
    drop(publisher);
    are_told(&listeners, &[Told::Announced, Told::Withdrawn]).await?;
    // That every listener hears of another beginning shows that it would have heard of one before.
    let _again = Staying::publish(supervisor.address().await?, PATH).await?;
    are_told(&listeners, &[Told::Announced, Told::Withdrawn, Told::Announced]).await
}

/// Guards the same when the process goes, and not the publisher: all its links close at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broadcasts_of_a_killed_generation_are_withdrawn_once() -> anyhow::Result<()> {
    let (supervisor, publisher, mut listeners) = three_generations().await?;
    let first = supervisor.status().await?.generation(1).and_then(|first| first.pid).context("it has a process")?;
    signal_process(first, Signal::SIGKILL)?;
    // The one whose session it was hears nothing any more.
    drop(listeners.remove(0));
    are_told(&listeners, &[Told::Announced, Told::Withdrawn]).await?;
    drop(publisher);
    let _again = Staying::publish(supervisor.address().await?, PATH).await?;
    are_told(&listeners, &[Told::Announced, Told::Withdrawn, Told::Announced]).await
}

/// Guards the move of a publisher, which is in both generations for a while: to nobody is it gone between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_moves_over_is_announced_once_and_withdrawn_once() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    let source = media::origin();
    let publisher = Publisher::start(&source, PATH, RATE)?;
    let moving = native::publish(&source, native::url(Scheme::Quic, server)?, Restart::Redial).await?;
    let mut listeners = vec![Listener::start(server).await?];
    are_told(&listeners, &[Told::Announced]).await?;
    supervisor.upgrade().await?;
    listeners.push(Listener::start(server).await?);
    supervisor.wait_for("it in the new one alone", |status| (status.sessions(1), status.sessions(2)) == (1, 2)).await?;
    are_told(&listeners, &[Told::Announced]).await?;
    drop((publisher, moving));
    are_told(&listeners, &[Told::Announced, Told::Withdrawn]).await?;
    let _again = Staying::publish(server, PATH).await?;
    are_told(&listeners, &[Told::Announced, Told::Withdrawn, Told::Announced]).await
}
