//! What children do when their supervisor is stopped or killed at any moment of the handover.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tests::client::echo::{Habit, Session, Steady};
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{procfs, program, relay};

/// In which a child without sessions ends once its supervisor is gone.
const SOON: Duration = Duration::from_secs(2);

/// Kills the supervisor; returns the processes that were below it.
async fn kill(supervisor: &mut Supervisor) -> anyhow::Result<Vec<u32>> {
    // Nobody is started once it is stopped, so that the list is complete.
    supervisor.process.signal(Signal::SIGSTOP)?;
    let children = procfs::descendants(supervisor.process.pid());
    supervisor.process.signal(Signal::SIGKILL)?;
    supervisor.process.wait(PATIENCE).await?;
    Ok(children)
}

/// Guards against workers that wait for ever for a message of a supervisor that is dead: it is killed at 0 to 25 ms after
/// an upgrade was asked for, so between any two messages of the handover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_without_sessions_end_soon_after_their_supervisor_was_killed() -> anyhow::Result<()> {
    for round in 0..20 {
        let setup = Setup::new(program::echo()?)?.flags(["--probation", "20ms"]).child(["[::]:0"]);
        let mut supervisor = setup.serve().await?;
        supervisor.process.signal(Signal::SIGUSR2)?;
        let pause = Duration::from_micros(round * 1_250);
        let _nothing_comes = wait::within(pause, "a pause", std::future::pending::<()>()).await;
        let children = kill(&mut supervisor).await?;
        let killed = Instant::now();
        ensure!(!children.is_empty(), "there were children");
        wait::until(PATIENCE, "their end", || Ok(!children.iter().any(|pid| procfs::is_alive(*pid)))).await?;
        ensure!(killed.elapsed() < SOON, "{:?} after {pause:?}", killed.elapsed());
    }
    Ok(())
}

/// The same of the relay, whose workers are threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_without_sessions_ends_soon_after_its_supervisor_was_killed() -> anyhow::Result<()> {
    for upgraded in [false, true] {
        let setup = Setup::new(program::relay()?)?.flags(["--probation", "1m"]).child(relay::OPEN);
        let mut supervisor = setup.child(["--runtime-workers", "2"]).serve().await?;
        if upgraded {
            supervisor.process.signal(Signal::SIGUSR2)?;
            supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
        }
        let children = kill(&mut supervisor).await?;
        let killed = Instant::now();
        wait::until(PATIENCE, "their end", || Ok(!children.iter().any(|pid| procfs::is_alive(*pid)))).await?;
        ensure!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    }
    Ok(())
}

/// Guards the sessions of a supervisor that is gone for good: they are drained, not dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_drained_after_the_supervisor_was_killed() -> anyhow::Result<()> {
    let setup = Setup::new(program::echo()?)?.flags(["--drain-timeout", "3s"]).child(["[::]:0"]);
    let mut supervisor = setup.serve().await?;
    let session = Session::connect(supervisor.address().await?).await?;
    supervisor.wait_for("the session", |status| status.sessions(1) == 1).await?;
    let children = kill(&mut supervisor).await?;
    let killed = Instant::now();
    session.echo(b"served without a supervisor").await?;
    wait::until(PATIENCE, "its end at the deadline", || Ok(!children.iter().any(|pid| procfs::is_alive(*pid)))).await?;
    assert!(killed.elapsed() > Duration::from_millis(2_500), "{:?}", killed.elapsed());
    Ok(())
}

/// Guards against a relay that needs its supervisor for anything but changes: it is stopped in the middle of upgrades,
/// for longer than anybody waits, and everything goes on when it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_is_stopped_in_the_middle_of_an_upgrade_costs_nothing() -> anyhow::Result<()> {
    let flags = ["--probation", "20ms", "--drain-timeout", "5m", "--max-generations", "16"];
    let supervisor = Setup::new(program::echo()?)?.flags(flags).child(["[::]:0"]).serve().await?;
    let server = supervisor.address().await?;
    let habit = Habit { pause: Duration::from_millis(20), size: 100, rebind: false };
    let session = Steady::start(Session::connect(server).await?, habit);
    for round in 0..10_u32 {
        supervisor.process.signal(Signal::SIGUSR2)?;
        let pause = Duration::from_millis(u64::from(round) * 3);
        let _nothing_comes = wait::within(pause, "a pause", std::future::pending::<()>()).await;
        supervisor.process.signal(Signal::SIGSTOP)?;
        let before = session.report().echoes;
        wait::until(PATIENCE, "ten more echoes", || {
            let report = session.report();
            ensure!(report.failure.is_none(), "{report:?}");
            Ok(report.echoes >= before + 10)
        })
        .await?;
        // Whoever is active, or was when the supervisor stopped, serves new clients too.
        Session::connect(server).await?.echo(b"new").await.with_context(|| format!("{pause:?}"))?;
        supervisor.process.signal(Signal::SIGCONT)?;
        let next = round + 2;
        supervisor.wait_for("the upgrade", |status| status.state(next) == "active").await?;
    }
    let status = supervisor.wait_for("the first and the last", |status| status.generations.len() == 2).await?;
    assert_eq!(status.sessions(1), 1, "{status:?}");
    session.stop().await?;
    Ok(())
}
