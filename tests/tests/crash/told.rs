//! Clients of a generation that ended without a word hear of it by a stateless reset, unasked.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use quinn::ConnectionError;
use std::net::{Ipv4Addr, SocketAddr};
use tests::client::echo::Session;
use tests::client::line::Line;
use tests::client::media;
use tests::client::webtransport::{self, Media};
use tests::process::signal_process;
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{program, relay};

/// Sessions that have echoed once and are silent from then on: their idle timeout is 30 s, longer than any wait here.
pub(crate) async fn silent(server: SocketAddr, count: usize) -> anyhow::Result<Vec<Session>> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        let session = Session::connect(server).await?;
        session.echo(b"here").await?;
        sessions.push(session);
    }
    Ok(sessions)
}

/// Waits until every one has been reset.
pub(crate) async fn are_told(sessions: &[Session]) -> anyhow::Result<()> {
    wait::until(PATIENCE, "the end of all sessions", || {
        let mut all = true;
        for session in sessions {
            match session.ended() {
                Some(ConnectionError::Reset) => {}
                Some(other) => anyhow::bail!("ended otherwise: {other}"),
                None => all = false,
            }
        }
        Ok(all)
    })
    .await
}

/// That none of them has ended, and all still work.
pub(crate) async fn live_on(sessions: &[Session]) -> anyhow::Result<()> {
    for session in sessions {
        session.echo(b"still here").await?;
    }
    Ok(())
}

/// SIGKILL to a generation.
pub(crate) async fn kill(supervisor: &Supervisor, generation: u32) -> anyhow::Result<()> {
    let status = supervisor.status().await?;
    let pid = status.generation(generation).and_then(|one| one.pid).context("it runs")?;
    signal_process(pid, Signal::SIGKILL)
}

async fn echo(flags: &[&str]) -> anyhow::Result<(Supervisor, SocketAddr)> {
    let supervisor = Setup::new(program::echo()?)?.flags(flags).child(["[::]:0"]).serve().await?;
    let server = supervisor.address().await?;
    Ok((supervisor, server))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_clients_of_a_killed_generation_are_told() -> anyhow::Result<()> {
    let (supervisor, six) = echo(&["--probation", "0s"]).await?;
    let four = SocketAddr::from((Ipv4Addr::LOCALHOST, six.port()));
    let mut sessions = silent(six, 20).await?;
    sessions.extend(silent(four, 20).await?);
    for session in &sessions[15..25] {
        session.rebind()?;
        session.echo(b"from elsewhere").await?;
    }
    kill(&supervisor, 1).await?;
    are_told(&sessions).await?;
    live_on(&silent(six, 1).await?).await
}

/// The real relay, with a worker per member; a viewer sends nothing by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_and_publishers_of_a_killed_relay_are_told() -> anyhow::Result<()> {
    let setup = Setup::new(program::relay()?)?.flags(["--probation", "0s"]).child(relay::OPEN);
    let supervisor = setup.child(["--runtime-workers", "3"]).serve().await?;
    let server = supervisor.address().await?;
    let origin = media::origin();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(webtransport::Session::connect(server, &Media::subscribe(&origin)).await?);
        sessions.push(webtransport::Session::connect(server, &Media::publish(&media::origin())).await?);
    }
    supervisor.wait_for("all sessions", |status| status.sessions(1) == 12).await?;
    kill(&supervisor, 1).await?;
    wait::until(PATIENCE, "the end of all sessions", || Ok(!sessions.iter().any(webtransport::Session::is_open)))
        .await?;
    supervisor.process.wait_for_line("answering for dead generations", PATIENCE).await?;
    ensure!(supervisor.process.count("dead=[1] told=12") == 1, "{}", supervisor.process.tail());
    Ok(())
}

/// Who has left needs no word: the ledger names the live ones alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_have_left_are_not_told() -> anyhow::Result<()> {
    let setup = Setup::new(program::relay()?)?.flags(["--probation", "0s"]).child(relay::OPEN);
    let supervisor = setup.serve().await?;
    let server = supervisor.address().await?;
    let stays = webtransport::Session::connect(server, &Media::subscribe(&media::origin())).await?;
    for _ in 0..5 {
        drop(webtransport::Session::connect(server, &Media::subscribe(&media::origin())).await?);
    }
    supervisor.wait_for("their end", |status| status.sessions(1) == 1).await?;
    kill(&supervisor, 1).await?;
    wait::until(PATIENCE, "the end of the last", || Ok(!stays.is_open())).await?;
    supervisor.process.wait_for_line("dead=[1] told=1 ", PATIENCE).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_rolled_back_generation_are_told_and_no_others() -> anyhow::Result<()> {
    let (supervisor, server) = echo(&["--probation", "5m"]).await?;
    let of_the_old = silent(server, 5).await?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
    let of_the_new = silent(server, 5).await?;
    ensure!(supervisor.command("rollback", &[]).await?.status.success(), "rolled back");
    are_told(&of_the_new).await?;
    live_on(&of_the_old).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_an_evicted_generation_are_told_and_no_others() -> anyhow::Result<()> {
    let (supervisor, server) = echo(&["--probation", "0s", "--max-generations", "2", "--drain-timeout", "5m"]).await?;
    let of_the_first = silent(server, 5).await?;
    supervisor.upgrade().await?;
    let of_the_second = silent(server, 5).await?;
    ensure!(supervisor.command("upgrade", &["--evict-oldest"]).await?.status.success(), "upgraded");
    are_told(&of_the_first).await?;
    live_on(&of_the_second).await
}

/// It hangs, so it closes nothing at its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_generation_killed_at_its_deadline_are_told_and_no_others() -> anyhow::Result<()> {
    let (supervisor, server) = echo(&["--probation", "0s", "--drain-timeout", "1s"]).await?;
    let of_the_first = silent(server, 5).await?;
    let first = supervisor.status().await?.active().and_then(|active| active.pid).context("it runs")?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    supervisor.wait_for("the drain", |status| status.state(1) == "draining").await?;
    signal_process(first, Signal::SIGSTOP)?;
    let of_the_second = silent(server, 5).await?;
    are_told(&of_the_first).await?;
    live_on(&of_the_second).await
}

/// A client that is out of reach when it is told learns it from whoever is active when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_packet_of_an_orphan_is_answered_by_the_generation_after_next() -> anyhow::Result<()> {
    let (supervisor, server) = echo(&["--probation", "0s"]).await?;
    let line = Line::to(server).await?;
    let sessions = silent(line.address(), 1).await?;
    line.cut(true);
    kill(&supervisor, 1).await?;
    supervisor.wait_for("a successor", |status| status.state(2) == "active").await?;
    supervisor.upgrade().await?;
    supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    line.cut(false);
    let [session] = &sessions[..] else { anyhow::bail!("one session") };
    let _cut_off = wait::within(PATIENCE, "an answer", session.echo(b"anybody?")).await?;
    are_told(&sessions).await
}
