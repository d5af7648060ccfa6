//! Clients of a generation that ended without a word hear of it by a stateless reset, unasked.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use std::net::{Ipv4Addr, SocketAddr};
use tests::client::line::Line;
use tests::client::media;
use tests::client::silent::{Silent, all_reset};
use tests::client::webtransport::{self, Media};
use tests::process::signal_process;
use tests::supervisor::{Setup, Supervisor};
use tests::tls::PATIENT;
use tests::wait::{self, PATIENCE};
use tests::{program, relay, scenario};

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
    let mut sessions = Silent::connect(six, 20).await?.into_sessions();
    sessions.extend(Silent::connect(four, 20).await?.into_sessions());
    for session in &sessions[15..25] {
        session.rebind()?;
        session.echo(b"from elsewhere").await?;
    }
    let clients = Silent::of(sessions).await?;
    kill(&supervisor, 1).await?;
    clients.are_told().await?;
    Silent::connect(six, 1).await?.live_on().await
}

/// The real relay, with a worker per member. Its clients keep nothing alive, and would wait for half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_and_publishers_of_a_killed_relay_are_told() -> anyhow::Result<()> {
    let setup = Setup::new(program::relay()?)?.flags(["--probation", "0s"]).child(relay::OPEN);
    let supervisor = setup.child(["--runtime-workers", "3", "--quic-idle-timeout", "30s"]).serve().await?;
    let server = supervisor.address().await?;
    let origin = media::origin();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(webtransport::Session::connect_silently(server, &Media::subscribe(&origin)).await?);
        sessions.push(webtransport::Session::connect_silently(server, &Media::publish(&media::origin())).await?);
    }
    supervisor.wait_for("all sessions", |status| status.sessions(1) == 12).await?;
    kill(&supervisor, 1).await?;
    // Their library closes what was reset once more, so it is the time that says why they ended.
    let ended = || Ok(!sessions.iter().any(webtransport::Session::is_open));
    wait::until(PATIENT / 2, "the end of all sessions", ended).await?;
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
    let of_the_old = Silent::connect(server, 5).await?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
    let of_the_new = Silent::connect(server, 5).await?;
    ensure!(supervisor.command("rollback", &[]).await?.status.success(), "rolled back");
    of_the_new.are_told().await?;
    of_the_old.live_on().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_an_evicted_generation_are_told_and_no_others() -> anyhow::Result<()> {
    let (supervisor, server) = echo(&["--probation", "0s", "--max-generations", "2", "--drain-timeout", "5m"]).await?;
    let of_the_first = Silent::connect(server, 5).await?;
    supervisor.upgrade().await?;
    let of_the_second = Silent::connect(server, 5).await?;
    ensure!(supervisor.command("upgrade", &["--evict-oldest"]).await?.status.success(), "upgraded");
    of_the_first.are_told().await?;
    of_the_second.live_on().await
}

/// It hangs, so it closes nothing at its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_generation_killed_at_its_deadline_are_told_and_no_others() -> anyhow::Result<()> {
    let (supervisor, server) = echo(&["--probation", "0s", "--drain-timeout", "1s"]).await?;
    let of_the_first = Silent::connect(server, 5).await?;
    let first = supervisor.status().await?.active().and_then(|active| active.pid).context("it runs")?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    supervisor.wait_for("the drain", |status| status.state(1) == "draining").await?;
    signal_process(first, Signal::SIGSTOP)?;
    let of_the_second = Silent::connect(server, 5).await?;
    of_the_first.are_told().await?;
    of_the_second.live_on().await
}

/// The first heir dies when it has heard that it is one, and the next ones too, until one does its work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_whose_heir_dies_before_it_tells_them_are_told_by_the_next_one() -> anyhow::Result<()> {
    let (supervisor, program) = scenario::serving(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    let clients = Silent::connect(server, 5).await?;
    program.plays("quic [::]:0 1\nname echo\nhello\nadopt\nuntil heir\ndie")?;
    kill(&supervisor, 1).await?;
    let ended = supervisor.process.wait_for_line("generation 2 failed", PATIENCE).await?;
    ensure!(ended.contains("signal 9 before it was ready"), "{ended}");
    program.becomes_echo()?;
    clients.are_told().await.with_context(|| supervisor.process.tail())?;
    Silent::connect(server, 1).await?.live_on().await
}

/// A stop takes as long as its sessions may, and who loses a connection in it has others to go to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_generation_killed_in_a_stop_are_told_by_one_that_drains_and_no_others() -> anyhow::Result<()> {
    let flags = ["--probation", "0s", "--drain-timeout", "5m", "--stop-timeout", "5m"];
    let (mut supervisor, server) = echo(&flags).await?;
    let of_the_first = Silent::connect(server, 5).await?;
    supervisor.upgrade().await?;
    let of_the_second = Silent::connect(server, 5).await?;
    supervisor.upgrade().await?;
    let of_the_third = Silent::connect(server, 5).await?;
    supervisor.process.signal(Signal::SIGTERM)?;
    supervisor.wait_for("the drain of all", |status| status.state(3) == "draining").await?;
    // One that only drained, then the one that was active, which had told the first one's clients.
    kill(&supervisor, 1).await?;
    of_the_first.are_told().await.with_context(|| supervisor.process.tail())?;
    of_the_second.live_on().await?;
    kill(&supervisor, 3).await?;
    of_the_third.are_told().await.with_context(|| supervisor.process.tail())?;
    of_the_second.live_on().await?;
    // The last one has no heir, and nothing is waited for.
    kill(&supervisor, 2).await?;
    let status = supervisor.process.wait(PATIENCE).await?;
    ensure!(status.code() == Some(0), "{status}: {}", supervisor.process.tail());
    Ok(())
}

/// The same of real relays: one that drains obeys still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_of_a_relay_killed_in_a_stop_are_told_by_one_that_drains() -> anyhow::Result<()> {
    let flags = ["--probation", "0s", "--drain-timeout", "5m", "--stop-timeout", "5m"];
    let setup = Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN);
    let supervisor = setup.child(["--quic-idle-timeout", "30s"]).serve().await?;
    let server = supervisor.address().await?;
    let media = Media::subscribe(&media::origin());
    let (mut of_the_first, mut of_the_second) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        of_the_first.push(webtransport::Session::connect_silently(server, &media).await?);
    }
    supervisor.upgrade().await?;
    for _ in 0..4 {
        of_the_second.push(webtransport::Session::connect_silently(server, &media).await?);
    }
    supervisor.process.signal(Signal::SIGTERM)?;
    for session in of_the_first.iter().chain(&of_the_second) {
        session.goaway(PATIENCE).await?;
    }
    kill(&supervisor, 2).await?;
    supervisor.process.wait_for_line("dead=[2] told=4 ", PATIENCE).await?;
    let ended = || Ok(!of_the_second.iter().any(webtransport::Session::is_open));
    wait::until(PATIENT / 2, "the end of their sessions", ended).await?;
    ensure!(of_the_first.iter().all(webtransport::Session::is_open), "{}", supervisor.process.tail());
    Ok(())
}

/// A client that is out of reach when it is told learns it from whoever is active when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_packet_of_an_orphan_is_answered_by_the_generation_after_next() -> anyhow::Result<()> {
    let (supervisor, server) = echo(&["--probation", "0s"]).await?;
    let line = Line::to(server).await?;
    let sessions = Silent::connect(line.address(), 1).await?.into_sessions();
    line.cut(true);
    kill(&supervisor, 1).await?;
    supervisor.wait_for("a successor", |status| status.state(2) == "active").await?;
    supervisor.upgrade().await?;
    supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    line.cut(false);
    let [session] = &sessions[..] else { anyhow::bail!("one session") };
    let _cut_off = wait::within(PATIENCE, "an answer", session.echo(b"anybody?")).await?;
    wait::until(PATIENCE, "the reset", || all_reset(&sessions)).await
}
