//! Who answers for the dead is remembered over every change of the supervisor process.

use crate::service::{Service, goes_on};
use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tests::client::line::Line;
use tests::client::silent::{Silent, all_reset};
use tests::process::signal_process;
use tests::procfs;
use tests::wait::{self, PATIENCE};

const FLAGS: [&str; 4] = ["--probation", "0s", "--drain-timeout", "5m"];

/// SIGKILL to the active generation, and its successor.
async fn crash(service: &Service) -> anyhow::Result<u32> {
    let status = service.status().await?;
    let active = status.active().context("one is active")?;
    let (generation, pid) = (active.generation, active.pid.context("it runs")?);
    signal_process(pid, Signal::SIGKILL)?;
    let later = |status: &tests::supervisor::Status| status.active().is_some_and(|one| one.generation > generation);
    let status = service.wait_for("a successor", later).await?;
    Ok(status.active().context("one is active")?.generation)
}

/// The client is out of reach while its generation dies, the supervisor executes another self, is killed, and is followed by
/// another process, with a new generation after each; whoever is then active knows what to answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_is_answered_after_a_self_upgrade_and_a_crash_of_the_supervisor() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let line = Line::to(service.address().await?).await?;
    let sessions = Silent::connect(line.address(), 1).await?.into_sessions();
    let [session] = &sessions[..] else { anyhow::bail!("one session") };
    line.cut(true);
    assert_eq!(crash(&service).await?, 2);
    service.replace_program()?;
    assert_eq!(service.upgrade().await?, 3);
    service.kill().await?;
    service.serve().await?;
    assert_eq!(service.upgrade().await?, 4);
    line.cut(false);
    let _no_echo = wait::within(PATIENCE, "an answer", session.echo(b"anybody?")).await?;
    wait::until(PATIENCE, "the reset", || all_reset(&sessions)).await.with_context(|| service.tail())
}

/// Both die at once, the supervisor first, so that nobody saw the relay's end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_relay_that_died_unseen_are_told_by_the_next_supervisor() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    let status = service.serve().await?;
    let server = service.address().await?;
    let clients = Silent::connect(server, 10).await?;
    let relay = status.active().and_then(|active| active.pid).context("it runs")?;
    service.kill().await?;
    signal_process(relay, Signal::SIGKILL)?;
    service.serve().await?;
    clients.are_told().await.with_context(|| service.tail())?;
    Silent::connect(server, 1).await?.live_on().await
}

/// The relay is not the next supervisor's child, and its end is noticed all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_relay_that_dies_under_the_next_supervisor_are_told() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let server = service.address().await?;
    let clients = Silent::connect(server, 5).await?;
    service.kill().await?;
    service.serve().await?;
    assert_eq!(crash(&service).await?, 2);
    clients.are_told().await.with_context(|| service.tail())?;
    Silent::connect(server, 1).await?.live_on().await
}

/// Guards the connections of a relay that lives: its process can't be found, and to take it for dead would be to reset them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_whose_process_cannot_be_found_is_mourned_when_it_is_known_to_be_dead() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    let relay = service.serve().await?.active().and_then(|active| active.pid).context("it runs")?;
    let steady = service.session().await?;
    let clients = Silent::connect(service.address().await?, 5).await?;
    service.kill().await?;
    service.changes_the_state(0, |document| document["generations"][0]["process"]["started"] = Value::Null)?;
    service.manager.as_ref().context("a manager")?.forget_one("process.1")?;
    let status = service.serve().await?;
    assert_eq!(service.lines_with("is taken to live while its channel is open"), 1, "{}", service.tail());
    assert_eq!(status.active().and_then(|active| active.pid), Some(relay));
    goes_on(&steady).await.with_context(|| service.tail())?;
    assert_eq!(service.upgrade().await?, 2);
    goes_on(&steady).await.with_context(|| service.tail())?;
    assert_eq!(service.lines_with("answering for"), 0);
    signal_process(relay, Signal::SIGKILL)?;
    clients.are_told().await.with_context(|| service.tail())
}

/// Guards the connections of a relay that may live: neither its process nor its channel came along, so nobody ever hears of
/// its end. It is gone for the service, but what its clients send is answered by nobody. (It drains by itself meanwhile.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_of_which_nothing_came_along_is_lost_and_nobody_answers_for_it() -> anyhow::Result<()> {
    /// For so long it is looked for.
    const SEARCHED: Duration = Duration::from_secs(5);
    let mut service = Service::new(&FLAGS, true)?;
    let relay = service.serve().await?.active().and_then(|active| active.pid).context("it runs")?;
    let sessions = Silent::connect(service.address().await?, 3).await?.into_sessions();
    let [session, ..] = &sessions[..] else { anyhow::bail!("no session") };
    assert_eq!(service.upgrade().await?, 2);
    service.kill().await?;
    service.changes_the_state(0, |document| document["generations"][0]["process"]["started"] = Value::Null)?;
    for name in ["process.1", "channel.1"] {
        service.manager.as_ref().context("a manager")?.forget_one(name)?;
    }
    let begun = Instant::now();
    assert_eq!(service.serve().await?.state(1), "draining", "it may be found yet");
    service.wait_for("the end of the search", |status| status.generation(1).is_none()).await?;
    ensure!(begun.elapsed() >= SEARCHED, "given up after {:?}", begun.elapsed());
    assert_eq!(service.lines_with("generation 1 can neither be found nor be told anything any more"), 1);
    wait::until(PATIENCE, "the end of its ledger", || Ok(stored(&service)? == ["ledger.2"])).await?;

    let counted = |status: &tests::supervisor::Status| status.generation(2).is_some_and(|two| two.foreign > 0);
    tokio::select! {
        echoed = session.echo(b"anybody?") => anyhow::bail!("answered: {echoed:?}"),
        counted = service.wait_for("a packet that is nobody's", counted) => drop(counted?),
    }
    ensure!(sessions.iter().all(|session| session.ended().is_none()), "{}", service.tail());
    ensure!(service.lines_with("answering for") == 0 && procfs::is_alive(relay), "{}", service.tail());
    Ok(())
}

/// Of what another version knew of its generations, nothing can be read but that they live; so their clients may live on
/// for as long as those of a relay that names no idle timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_that_came_with_a_state_of_another_version_is_mourned_and_forgotten() -> anyhow::Result<()> {
    const RETENTION: Duration = Duration::from_secs(40);
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let server = service.address().await?;
    let clients = Silent::connect(server, 5).await?;
    service.kill().await?;
    service.ages_the_state()?;
    service.serve().await?;
    assert_eq!(service.lines_with("of another version"), 1);
    assert_eq!(crash(&service).await?, 2);
    let dead = Instant::now();
    clients.are_told().await.with_context(|| service.tail())?;
    ensure!(stored(&service)? == ["ledger.1", "ledger.2"], "{:?}", stored(&service)?);
    wait::until(RETENTION + PATIENCE, "the end of the ledger", || Ok(stored(&service)? == ["ledger.2"])).await?;
    ensure!(dead.elapsed() + Duration::from_secs(1) >= RETENTION, "after {:?}", dead.elapsed());
    Ok(())
}

/// The ledgers that the service manager keeps.
fn stored(service: &Service) -> anyhow::Result<Vec<String>> {
    let names = service.manager.as_ref().context("a manager")?.names();
    Ok(names.into_iter().filter(|name| name.starts_with("ledger.")).collect::<BTreeSet<_>>().into_iter().collect())
}

/// The document and the descriptor are there before the child has its ledger, and gone once nobody needs them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ledgers_are_in_the_fd_store_as_long_as_their_clients_may_live() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let _client = Silent::connect(service.address().await?, 1).await?;
    wait::until(PATIENCE, "the ledger", || Ok(stored(&service)? == ["ledger.1"])).await?;
    crash(&service).await?;
    wait::until(PATIENCE, "both ledgers", || Ok(stored(&service)? == ["ledger.1", "ledger.2"])).await?;
    signal_process(service.pid()?, Signal::SIGTERM)?;
    ensure!(service.end().await? == Some(0), "{}", service.tail());
    assert_eq!(stored(&service)?, [""; 0]);
    Ok(())
}
