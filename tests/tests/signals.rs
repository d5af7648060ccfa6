//! What each signal to the supervisor does, alone and in each other's way.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use protocol::exit;
use std::time::{Duration, Instant};
use tests::client::echo::{Habit, Session, Steady};
use tests::client::handshake;
use tests::scenario;
use tests::supervisor::{Setup, Supervisor};
use tests::tls::{self, Seen};
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, procfs, program};

/// Waits for an orderly end: status 0, and nobody left behind.
async fn ends_well(mut supervisor: Supervisor) -> anyhow::Result<()> {
    let children = procfs::descendants(supervisor.process.pid());
    let status = supervisor.process.wait(PATIENCE).await?;
    ensure!(status.code() == Some(i32::from(exit::OK)), "{status}: {}", supervisor.process.tail());
    for child in children {
        ensure!(!procfs::is_alive(child), "process {child} outlived the supervisor");
    }
    Ok(())
}

/// A stop leaves sessions their time, and ends as soon as the last of them has left.
#[tokio::test]
async fn a_stop_waits_for_the_last_session_and_no_longer() -> anyhow::Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (mut supervisor, _program) = scenario::serving(&["--stop-timeout", "5m"]).await?;
        let session = Session::connect(supervisor.address().await?).await?;
        supervisor.wait_for("the session", |status| status.sessions(1) == 1).await?;
        supervisor.process.signal(signal)?;
        supervisor.wait_for("the drain", |status| status.state(1) == "draining").await?;
        session.echo(b"still served").await?;
        ensure!(supervisor.process.is_running()?, "it ended before its last session");
        drop(session);
        ends_well(supervisor).await?;
    }
    Ok(())
}

/// A session that stays is closed when the stop's time is over.
#[tokio::test]
async fn a_stop_ends_at_its_timeout() -> anyhow::Result<()> {
    let (supervisor, _program) = scenario::serving(&["--stop-timeout", "1s"]).await?;
    let session = Session::connect(supervisor.address().await?).await?;
    supervisor.wait_for("the session", |status| status.sessions(1) == 1).await?;
    let asked = Instant::now();
    supervisor.process.signal(Signal::SIGTERM)?;
    ends_well(supervisor).await?;
    assert!(asked.elapsed() >= Duration::from_secs(1), "{:?}", asked.elapsed());
    assert!(session.ended().is_some());
    Ok(())
}

/// An operator who does not want to wait asks a second time, by either signal.
#[tokio::test]
async fn a_second_stop_signal_ends_it_at_once() -> anyhow::Result<()> {
    let both = [Signal::SIGTERM, Signal::SIGINT];
    for (first, second) in both.into_iter().flat_map(|first| both.map(|second| (first, second))) {
        let (supervisor, _program) = scenario::serving(&["--stop-timeout", "5m"]).await?;
        let _session = Session::connect(supervisor.address().await?).await?;
        supervisor.process.signal(first)?;
        supervisor.wait_for("the drain", |status| status.state(1) == "draining").await?;
        supervisor.process.signal(second)?;
        ends_well(supervisor).await?;
    }
    Ok(())
}

/// Nothing that comes later brings a service back that is stopping.
#[tokio::test]
async fn nothing_cancels_a_stop() -> anyhow::Result<()> {
    let (supervisor, _program) = scenario::serving(&["--stop-timeout", "5m"]).await?;
    let session = Session::connect(supervisor.address().await?).await?;
    supervisor.process.signal(Signal::SIGTERM)?;
    supervisor.wait_for("the drain", |status| status.state(1) == "draining").await?;
    supervisor.process.signal(Signal::SIGHUP)?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    let refused = supervisor.command("upgrade", &[]).await?;
    assert_eq!(refused.status.code(), Some(i32::from(exit::DENIED)), "{}", refused.stderr);
    assert_eq!(supervisor.status().await?.generations.len(), 1);
    drop(session);
    ends_well(supervisor).await
}

/// A stop during an upgrade ends both generations, whatever the upgrade was about to do.
#[tokio::test]
async fn a_stop_wins_over_an_upgrade() -> anyhow::Result<()> {
    let scripts = ["hang", "quic [::]:0 1\nhello\nadopt\nhang", "quic [::]:0 1\nhello\nadopt\nready\nserve"];
    for script in scripts {
        let (supervisor, program) = scenario::serving(&["--stop-timeout", "5s", "--probation", "1m"]).await?;
        program.plays(script)?;
        supervisor.process.signal(Signal::SIGUSR2)?;
        supervisor.wait_for("two generations", |status| status.generations.len() == 2).await?;
        supervisor.process.signal(Signal::SIGTERM)?;
        ends_well(supervisor).await?;
    }
    Ok(())
}

/// A stop before anything serves is no failure.
#[tokio::test]
async fn a_stop_before_the_first_generation_is_ready_ends_with_0() -> anyhow::Result<()> {
    let setup = Setup::new("program")?;
    let program = Replaceable::new(setup.folder());
    program.plays("hang")?;
    let supervisor = setup.exec(program.path()).start()?;
    supervisor.wait_for("the first generation", |status| status.generations.len() == 1).await?;
    supervisor.process.signal(Signal::SIGTERM)?;
    ends_well(supervisor).await
}

/// Deployment scripts ask too often: what comes during an upgrade becomes one more, which runs what is there by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_triggers_fold_and_the_last_one_wins() -> anyhow::Result<()> {
    let flags = ["--probation", "50ms", "--drain-timeout", "5m", "--max-generations", "16"];
    let (supervisor, program) = scenario::serving(&flags).await?;
    let session = Session::connect(supervisor.address().await?).await?;
    let habit = Habit { pause: Duration::from_millis(10), size: 100, rebind: false };
    let session = Steady::start(session, habit);
    for trigger in 0..30 {
        if trigger == 29 {
            program.becomes(&program::echo()?, &["[::]:0", "the-last-one"])?;
        }
        supervisor.process.signal(Signal::SIGUSR2)?;
        let status = supervisor.status().await?;
        let starting = status.generations.iter().filter(|one| ["starting", "ready"].contains(&one.state.as_str()));
        assert!(starting.count() <= 1, "{status:?}");
        let pause = Duration::from_millis(rand::random_range(0..50));
        let _nothing_comes = wait::within(pause, "a pause", std::future::pending::<()>()).await;
    }
    let settled = supervisor
        .wait_for("the last program alone beside the one with a session", |status| {
            let command = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let active = status.active().and_then(|active| active.pid);
            status.generations.len() == 2 && active.is_some_and(|pid| command(pid).contains("the-last-one"))
        })
        .await?;
    let mut ours: Vec<u32> = settled.generations.iter().filter_map(|generation| generation.pid).collect();
    let mut all = procfs::descendants(supervisor.process.pid());
    ours.sort_unstable();
    all.sort_unstable();
    assert_eq!(ours, all, "there are orphans");
    assert_eq!(settled.sessions(1), 1);
    session.stop().await?;
    Ok(())
}

/// Triggers before anything serves fold as well: they are meant for the program that is there by then.
#[tokio::test]
async fn a_trigger_before_the_first_generation_is_ready_becomes_one_upgrade() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "0s"]);
    let program = Replaceable::new(setup.folder());
    program.plays("starting 20000\npause 500\nquic [::]:0 1\nhello\nadopt\nready\nserve")?;
    let supervisor = setup.exec(program.path()).start()?;
    supervisor.wait_for("the first generation", |status| status.generations.len() == 1).await?;
    program.becomes_echo()?;
    for _ in 0..3 {
        supervisor.process.signal(Signal::SIGUSR2)?;
    }
    supervisor.wait_for("the second generation", |status| status.state(2) == "active").await?;
    supervisor.wait_for("the end of the first", |status| status.generations.len() == 1).await?;
    assert_eq!(supervisor.status().await?.state(3), "gone");
    Ok(())
}

/// SIGUSR1 means something to a child, and kills one that has no handler, by the kernel's default.
#[tokio::test]
async fn sigusr1_is_passed_on() -> anyhow::Result<()> {
    let relay = Setup::new(program::relay()?)?.child(tests::relay::OPEN).serve().await?;
    relay.process.signal(Signal::SIGUSR1)?;
    relay.process.wait_for_line("snapshot", PATIENCE).await?;

    let (echo, _program) = scenario::serving(&[]).await?;
    let before = echo.status().await?.generation(1).and_then(|first| first.pid).context("its pid")?;
    echo.process.signal(Signal::SIGUSR1)?;
    echo.wait_for("its successor", |status| status.active().is_some_and(|active| active.generation > 1)).await?;
    assert!(!procfs::is_alive(before));
    Ok(())
}

/// A new certificate needs no new process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_makes_a_relay_read_its_certificates_again() -> anyhow::Result<()> {
    let setup = Setup::new(program::relay()?)?;
    let folder = setup.folder().to_owned();
    let renew = || -> anyhow::Result<()> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        std::fs::write(folder.join("own.crt"), made.cert.pem())?;
        Ok(std::fs::write(folder.join("own.key"), made.signing_key.serialize_pem())?)
    };
    renew()?;
    let args =
        ["--listen", "[::]:0", "--auth-public", "**", "--listen-tls-cert", "own.crt", "--listen-tls-key", "own.key"];
    let supervisor = setup.child(args).serve().await?;
    let server = supervisor.address().await?;
    let fingerprint = async || {
        let seen = Seen::default();
        handshake::once(server, &tls::client(&["h3"], &seen)?).await?;
        seen.fingerprint().context("a certificate was presented")
    };
    let before = fingerprint().await?;
    renew()?;
    supervisor.process.signal(Signal::SIGHUP)?;
    wait::eventually(PATIENCE, "another certificate", async || Ok((fingerprint().await? != before).then_some(())))
        .await?;
    assert_eq!(supervisor.status().await?.active().map(|active| active.generation), Some(1));
    Ok(())
}

/// A child that has done its work ends the service; that is no crash.
#[tokio::test]
async fn an_active_child_that_ends_with_0_unasked_ends_the_service() -> anyhow::Result<()> {
    let setup = Setup::new("program")?;
    let program = Replaceable::new(setup.folder());
    program.plays("quic [::]:0 1\nhello\nadopt\nready\nactivated\nexit 0")?;
    ends_well(setup.exec(program.path()).start()?).await
}

/// Any other end is a crash: another generation serves on the same sockets, and handshakes meanwhile wait in them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_active_child_that_is_killed_is_replaced() -> anyhow::Result<()> {
    let (supervisor, _program) = scenario::serving(&[]).await?;
    let server = supervisor.address().await?;
    for generation in 1..4 {
        let status = supervisor.wait_for("one that is active", |status| status.state(generation) == "active").await?;
        let pid = status.generation(generation).and_then(|active| active.pid).context("its pid")?;
        tests::process::signal_process(pid, Signal::SIGKILL)?;
        drop(Session::connect(server).await?);
    }
    Ok(())
}
