//! The supervisor is killed, or leaves, and another one finds what it has left with the service manager.

use crate::manager::Manager;
use crate::service::{Service, goes_on};
use anyhow::Context as _;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;
use tests::client::echo::Session;
use tests::process::signal_process;
use tests::procfs;

const FLAGS: [&str; 6] = ["--probation", "100ms", "--drain-timeout", "5m", "--max-generations", "8"];

fn leave() -> i32 {
    libc::SIGRTMIN() + 1
}

/// SIGRTMIN+1, which nix has no name for.
fn tell_to_leave(service: &Service) -> anyhow::Result<()> {
    let kill =
        std::process::Command::new("kill").arg(format!("-{}", leave())).arg(service.pid()?.to_string()).status()?;
    anyhow::ensure!(kill.success(), "kill: {kill}");
    Ok(())
}

fn manager(service: &Service) -> anyhow::Result<&Manager> {
    service.manager.as_ref().context("a manager")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_the_next_supervisor_goes_on_with_everything() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let first = service.session().await?;
    assert_eq!(service.upgrade().await?, 2);
    let second = service.session().await?;
    let (before, sockets) = (service.status().await?, service.sockets()?);
    service.kill().await?;
    goes_on(&first).await?;
    goes_on(&second).await?;

    service.serve().await?;
    manager(&service)?.wait_for("READY=1").await?;
    let after = service.status().await?;
    let pids = |status: &tests::supervisor::Status| -> Vec<_> {
        status
            .generations
            .iter()
            .map(|generation| (generation.generation, generation.state.clone(), generation.pid))
            .collect()
    };
    assert_eq!(pids(&after), pids(&before));
    assert_eq!(service.sockets()?, sockets);
    let left = |status: &tests::supervisor::Status| status.generation(1).and_then(|generation| generation.deadline_ms);
    assert!(left(&after) < left(&before), "the drain goes on: {after:?}");
    goes_on(&first).await?;
    goes_on(&second).await?;

    // Ends of processes that are not its children are noticed.
    first.stop().await?;
    service.wait_for("the end of generation 1", |status| status.generation(1).is_none()).await?;
    assert_eq!(service.upgrade().await?, 3);
    goes_on(&second).await?;
    let victim = service.status().await?.active().context("active")?.pid.context("it runs")?;
    signal_process(victim, Signal::SIGKILL)?;
    service.wait_for("a successor", |status| status.active().is_some_and(|active| active.generation == 4)).await?;
    goes_on(&second).await?;

    // And so does a stop: nothing is left.
    let all: Vec<u32> = service.status().await?.generations.iter().filter_map(|generation| generation.pid).collect();
    drop(second);
    signal_process(service.pid()?, Signal::SIGTERM)?;
    assert_eq!(service.end().await?, Some(0));
    assert!(all.iter().all(|pid| !procfs::is_alive(*pid)));
    assert!(manager(&service)?.names().is_empty(), "{:?}", manager(&service)?.names());
    Ok(())
}

/// Whatever it is in the middle of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_moment_costs_no_session_and_no_handshake() -> anyhow::Result<()> {
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let mut sessions = vec![service.session().await?];
    for round in 0..12 {
        let context = || format!("seed {seed}, round {round}");
        // Nobody waits for this upgrade: who asks is cut off by the kill.
        signal_process(service.pid()?, Signal::SIGUSR2)?;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
        service.kill().await?;
        for session in &sessions {
            goes_on(session).await.with_context(context)?;
        }
        service.serve().await.with_context(context)?;
        let settled = |status: &tests::supervisor::Status| {
            status.active().is_some() && status.generations.iter().all(|g| ["active", "draining"].contains(&&*g.state))
        };
        service.wait_for("the end of the upgrade", settled).await.with_context(context)?;
        for session in &sessions {
            goes_on(session).await.with_context(|| format!("{}\n{}", context(), service.tail()))?;
        }
        if sessions.len() < 3 {
            sessions.push(service.session().await.with_context(context)?);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_replaces_supervisor_and_relay_and_a_bad_relay_leaves_the_old_one() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let session = service.session().await?;
    let sockets = service.sockets()?;
    for generation in 2..=3 {
        tell_to_leave(&service)?;
        assert_eq!(service.end().await?, Some(0), "{}", service.tail());
        goes_on(&session).await?;
        service.start()?;
        manager(&service)?.wait_for("READY=1").await?;
        let status = service.wait_for("the new generation", |status| status.active().is_some()).await?;
        assert_eq!(status.active().context("active")?.generation, generation);
        assert!(service.sockets()?.is_superset(&sockets));
        goes_on(&session).await?;
    }
    service.wait_for("the commit", |status| status.state(2) != "standby").await?;
    service.relay.contains("#!/bin/sh\nexit 1\n", 0o755)?;
    tell_to_leave(&service)?;
    assert_eq!(service.end().await?, Some(0));
    service.start()?;
    manager(&service)?.wait_for("READY=1").await?;
    assert_eq!(service.status().await?.active().context("active")?.generation, 3);
    manager(&service)?.wait_for("STATUS=").await?;
    goes_on(&session).await?;
    service.relay.becomes_echo()?;
    service.upgrade().await?;
    goes_on(&session).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_leaves_without_a_store_that_has_everything() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    service.serve().await?;
    tell_to_leave(&service)?;
    let denied = || Ok(service.lines_with("leave denied") == 1);
    tests::wait::until(tests::wait::PATIENCE, "a refusal", denied).await?;
    service.status().await?;

    let mut service = Service::new(&FLAGS, true)?;
    manager(&service)?.holds(3);
    service.serve().await?;
    let said = || Ok(service.lines_with("FileDescriptorStoreMax=") == 1);
    tests::wait::until(tests::wait::PATIENCE, "a warning", said).await.with_context(|| service.tail())?;
    tell_to_leave(&service)?;
    let denied = || Ok(service.lines_with("leave denied") == 1);
    tests::wait::until(tests::wait::PATIENCE, "a refusal", denied).await?;
    service.status().await?;
    Ok(())
}

/// Guards restarts after a bad moment: a service manager that did not answer once, and a store that was too small until its
/// limit was raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_told_to_leave_asks_the_store_anew() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    manager(&service)?.holds(3);
    service.serve().await?;
    let said = || Ok(service.lines_with("FileDescriptorStoreMax=") == 1);
    tests::wait::until(tests::wait::PATIENCE, "a warning", said).await.with_context(|| service.tail())?;
    let session = service.session().await?;
    manager(&service)?.holds(1_000);
    tell_to_leave(&service)?;
    assert_eq!(service.end().await?, Some(0), "{}", service.tail());
    service.serve().await?;
    service.wait_for("the upgrade", |status| status.active().is_some_and(|active| active.generation == 2)).await?;

    manager(&service)?.is_busy(true);
    assert_eq!(service.upgrade().await?, 3);
    let said = || Ok(service.lines_with("does not confirm") > 0);
    tests::wait::until(tests::wait::PATIENCE, "a warning", said).await.with_context(|| service.tail())?;
    manager(&service)?.is_busy(false);
    tell_to_leave(&service)?;
    assert_eq!(service.end().await?, Some(0), "{}", service.tail());
    service.serve().await?;
    goes_on(&session).await
}

/// Guards the sockets that a dead relay's successor has taken over: another supervisor must steer to them as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_took_over_sockets_serves_on_under_the_next_supervisors() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    for generation in 1..=4 {
        let active = service.status().await?.active().context("active")?.clone();
        assert_eq!(active.generation, generation);
        signal_process(active.pid.context("it runs")?, Signal::SIGKILL)?;
        let next =
            |status: &tests::supervisor::Status| status.active().is_some_and(|one| one.generation == generation + 1);
        service.wait_for("a successor", next).await?;
        for _ in 0..3 {
            for _ in 0..20 {
                Session::connect(service.address().await?).await?.echo(b"served").await?;
            }
            service.kill().await?;
            service.serve().await?;
        }
    }
    Ok(())
}

/// Guards the last words: a manager that handles a message after its sender is gone can't tell any more who that was, and
/// drops it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_ends_has_seen_its_last_words_handled() -> anyhow::Result<()> {
    for signal in [libc::SIGTERM, leave()] {
        let mut service = Service::new(&FLAGS, true)?;
        service.serve().await?;
        let signal = format!("-{signal}");
        let kill = std::process::Command::new("kill").arg(signal).arg(service.pid()?.to_string()).status()?;
        anyhow::ensure!(kill.success(), "kill: {kill}");
        assert_eq!(service.end().await?, Some(0));
        // Everything has been read by now: the last one is a question whose answer it has waited for.
        let said = manager(&service)?.said();
        assert_eq!(said.last().map(String::as_str), Some("BARRIER=1"), "{said:?}");
    }
    Ok(())
}

/// A state that a later version wrote: what is understood of it is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_of_another_version_degrades() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let first = service.session().await?;
    service.upgrade().await?;
    let second = service.session().await?;
    service.kill().await?;
    service.ages_the_state()?;
    service.serve().await?;
    assert_eq!(service.lines_with("of another version"), 1);
    let status = service.status().await?;
    assert_eq!((status.state(1), status.state(2)), ("draining", "active"));
    goes_on(&first).await?;
    goes_on(&second).await?;
    assert_eq!(service.upgrade().await?, 3);
    goes_on(&second).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_slot_costs_nothing_and_two_are_a_cold_start() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let session = service.session().await?;
    let pid = service.status().await?.active().context("active")?.pid;
    service.kill().await?;
    let file = std::fs::File::from(manager(&service)?.kept("state")?);
    let slot = file.metadata()?.len() / 2;
    let sequence = |at: u64| -> anyhow::Result<u64> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at + 16)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let newest = if sequence(0)? > sequence(slot)? { 0 } else { slot };
    file.write_all_at(b"torn", newest + 70)?;
    service.serve().await?;
    assert_eq!(service.status().await?.active().context("active")?.pid, pid);
    goes_on(&session).await?;

    drop(session);
    service.kill().await?;
    for at in [0, slot] {
        file.write_all_at(b"torn", at + 70)?;
    }
    // The old generation has the address until it has drained; until then a start fails, and systemd tries again.
    let served = tests::wait::eventually(Duration::from_secs(30), "a cold start", async || {
        service.start()?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let status = service.status().await;
        Ok(status.ok().and_then(|status| status.active().cloned()))
    });
    let active = served.await?;
    assert_eq!(active.generation, 1);
    assert_ne!(active.pid, pid);
    assert!(service.lines_with("can't be used") > 0);

    // And what it stored itself is what the next ones find.
    let session = service.session().await?;
    for _ in 0..2 {
        service.kill().await?;
        service.serve().await?;
        assert_eq!(service.status().await?.active().context("active")?.pid, active.pid);
        goes_on(&session).await?;
    }
    let mut names = manager(&service)?.names();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "a name is there twice: {names:?}");
    Ok(())
}

/// Variables for another process, as a shim leaves them, are not an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lost_everything_is_a_cold_start() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    let pid = service.serve().await?.active().context("active")?.pid.context("it runs")?;
    service.kill().await?;
    manager(&service)?.forget();
    // Nobody holds its channel any more: the relay ends by itself.
    tests::wait::until(tests::wait::PATIENCE, "the end of the relay", || Ok(!procfs::is_alive(pid))).await?;
    let status = service.serve().await?;
    assert_eq!(status.active().context("active")?.generation, 1);
    Ok(())
}
