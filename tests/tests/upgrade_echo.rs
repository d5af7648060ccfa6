//! Upgrades of the echo server: what QUIC clients notice of them (nothing), and what the operator is told.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use protocol::exit;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tests::client::echo::{Habit, Session, Steady};
use tests::client::handshake::Load;
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{procfs, program};

/// A supervised echo server on any port, IPv4 and IPv6.
async fn echo(flags: &[&str]) -> anyhow::Result<Supervisor> {
    Setup::new(program::echo()?)?.flags(flags).child(["[::]:0"]).serve().await
}

/// `count` sessions that echo a little from time to time.
async fn steady_sessions(server: SocketAddr, count: usize) -> anyhow::Result<Vec<Steady>> {
    let habit = Habit { pause: Duration::from_millis(20), size: 100, rebind: false };
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(Steady::start(Session::connect(server).await?, habit));
    }
    Ok(sessions)
}

/// Guards the main promise: neither the switch nor the drain costs a handshake or a session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_under_load_fail_no_handshake_and_move_no_session() -> anyhow::Result<()> {
    let flags = ["--probation", "200ms", "--drain-timeout", "5m", "--max-generations", "5"];
    let supervisor = echo(&flags).await?;
    let six = supervisor.address().await?;
    let four = SocketAddr::from((Ipv4Addr::LOCALHOST, six.port()));
    let load = Load::start(&[six, four], &[], 60)?;
    let mut sessions = steady_sessions(six, 3).await?;
    for generation in 2..=5 {
        assert_eq!(supervisor.upgrade().await?, generation);
        sessions.extend(steady_sessions(four, 3).await?);
    }
    let enough = || Ok(load.so_far().total() >= 300);
    wait::until(2 * PATIENCE, "300 handshakes", enough).await?;
    let handshakes = load.stop().await?;
    assert!(handshakes.failed.is_empty(), "{:?}", handshakes.failed);
    assert!(handshakes.delayed() <= 1, "{} of {} were delayed", handshakes.delayed(), handshakes.total());

    // Each generation has exactly the sessions that began while it was active.
    supervisor
        .wait_for("three sessions in each of five generations", |status| {
            status.generations.len() == 5 && (1..=5).all(|number| status.sessions(number) == 3)
        })
        .await?;
    for session in sessions {
        let report = session.stop().await?;
        assert!(report.echoes > 0);
    }
    Ok(())
}

/// Guards the steering: a packet of a client that moved finds its process by its connection ID alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_move_all_the_time_reach_their_own_generation_of_three() -> anyhow::Result<()> {
    const PACKETS: u64 = 100_000;
    let flags = ["--probation", "0s", "--drain-timeout", "5m"];
    let supervisor = echo(&flags).await?;
    let server = supervisor.address().await?;
    let habit = Habit { pause: Duration::ZERO, size: 20_000, rebind: true };
    let mut sessions = Vec::new();
    for generation in 1..=3 {
        for _ in 0..4 {
            sessions.push(Session::connect(server).await?);
        }
        if generation < 3 {
            supervisor.upgrade().await?;
        }
    }
    let sessions: Vec<_> = sessions.into_iter().map(|session| Steady::start(session, habit)).collect();
    wait::until(6 * PATIENCE, "100 000 packets of clients that move", || {
        for session in &sessions {
            ensure!(session.report().failure.is_none(), "{:?}", session.report());
        }
        Ok(sessions.iter().map(|session| session.report().datagrams).sum::<u64>() >= PACKETS)
    })
    .await?;
    supervisor
        .wait_for("four sessions in each of three generations", |status| {
            (1..=3).all(|number| status.sessions(number) == 4)
        })
        .await?;
    for session in sessions {
        let report = session.stop().await?;
        assert!(report.rebinds > 10, "{report:?}");
    }
    let status = supervisor.status().await?;
    let foreign: u64 = status.generations.iter().map(|generation| generation.foreign).sum();
    assert_eq!(foreign, 0, "{status:?}");
    Ok(())
}

/// Guards against new clients that hang because their first packets reach a process that is about to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_new_handshake_under_load_reaches_a_draining_generation() -> anyhow::Result<()> {
    let supervisor = echo(&["--probation", "0s", "--drain-timeout", "5m"]).await?;
    let server = supervisor.address().await?;
    // Until the end: a generation that has gone counts nothing any more.
    let mut stay = vec![Session::connect(server).await?];
    for generation in 2..=3 {
        supervisor.upgrade().await?;
        stay.push(Session::connect(server).await?);
        let before = supervisor.wait_for("a session", |status| status.sessions(generation) == 1).await?;
        let load = Load::start(&[server], &[], 100)?;
        wait::until(PATIENCE, "200 handshakes", || Ok(load.so_far().total() >= 200)).await?;
        let handshakes = load.stop().await?;
        assert!(handshakes.failed.is_empty(), "{:?}", handshakes.failed);
        let all = before.handshakes(generation) + handshakes.total() as u64;
        let after = supervisor
            .wait_for("all handshakes at the active one", |status| status.handshakes(generation) >= all)
            .await?;
        for older in 1..generation {
            assert_eq!(after.handshakes(older), before.handshakes(older), "generation {older}: {after:?}");
        }
    }
    drop(stay);
    Ok(())
}

/// Guards the words that operators and their tools read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_tells_each_state_of_an_upgrade() -> anyhow::Result<()> {
    let supervisor = echo(&["--probation", "3s", "--drain-timeout", "5m"]).await?;
    let server = supervisor.address().await?;
    let session = Session::connect(server).await?;
    let before = supervisor.wait_for("the session", |status| status.sessions(1) == 1).await?;
    assert_eq!(before.state(1), "active");
    assert_eq!(before.listeners.len(), 1);
    assert_eq!(before.listeners[0].name, "echo");

    supervisor.process.signal(Signal::SIGUSR2)?;
    let probation = supervisor.wait_for("a probation", |status| status.state(2) == "active").await?;
    assert_eq!(probation.state(1), "standby");
    let committed = supervisor.wait_for("the commit", |status| status.state(1) == "draining").await?;
    assert_eq!(committed.sessions(1), 1, "{committed:?}");
    let deadline =
        committed.generation(1).and_then(|draining| draining.deadline_ms).context("a drain has a deadline")?;
    assert!((200_000..=300_000).contains(&deadline), "{deadline}");

    session.echo(b"still there").await?;
    drop(session);
    let after = supervisor.wait_for("the end of the drained generation", |status| status.state(1) == "gone").await?;
    assert_eq!(after.state(2), "active");
    Ok(())
}

/// Guards the documented way for scripts: when `upgrade` returns, it is done, or they know why not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrade_returns_at_the_commit() -> anyhow::Result<()> {
    let supervisor = echo(&["--probation", "700ms"]).await?;
    let output = supervisor.command("upgrade", &[]).await?;
    assert_eq!(output.status.code(), Some(i32::from(exit::OK)), "{}", output.stderr);
    assert!(output.stdout.contains("generation 2 is active"), "{}", output.stdout);
    assert!(output.took >= Duration::from_millis(700), "{:?}", output.took);
    let status = supervisor.status().await?;
    assert_eq!(status.state(2), "active");
    assert!(["draining", "gone"].contains(&status.state(1)), "{status:?}");
    Ok(())
}

/// Guards against a host full of draining processes, and against an operator who does not know what to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_max_generations_an_upgrade_is_refused_and_the_oldest_named() -> anyhow::Result<()> {
    let flags = ["--probation", "0s", "--drain-timeout", "5m", "--max-generations", "2"];
    let supervisor = echo(&flags).await?;
    let server = supervisor.address().await?;
    let first = Session::connect(server).await?;
    supervisor.upgrade().await?;
    let second = Session::connect(server).await?;
    supervisor.wait_for("both sessions", |status| status.sessions(1) == 1 && status.sessions(2) == 1).await?;

    let refused = supervisor.command("upgrade", &[]).await?;
    assert_eq!(refused.status.code(), Some(i32::from(exit::DENIED)), "{}", refused.stderr);
    assert_eq!(refused.stderr.trim().lines().count(), 1, "{}", refused.stderr);
    for part in ["the oldest, 1,", "1 session", "4 m", "--evict-oldest"] {
        assert!(refused.stderr.contains(part), "{part} is not in {}", refused.stderr);
    }
    first.echo(b"the refused upgrade cost nothing").await?;
    second.echo(b"the refused upgrade cost nothing").await?;

    let evicted = supervisor.command("upgrade", &["--evict-oldest"]).await?;
    assert_eq!(evicted.status.code(), Some(i32::from(exit::OK)), "{}", evicted.stderr);
    let status = supervisor.wait_for("a third generation", |status| status.state(3) == "active").await?;
    assert_eq!(status.state(1), "gone");
    second.echo(b"the eviction was of another").await?;
    Ok(())
}

/// Guards against two processes that read one socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_generations_share_no_udp_socket() -> anyhow::Result<()> {
    let supervisor = echo(&["--probation", "0s", "--drain-timeout", "5m"]).await?;
    let server = supervisor.address().await?;
    let _first = Session::connect(server).await?;
    supervisor.upgrade().await?;
    let _second = Session::connect(server).await?;
    supervisor.upgrade().await?;
    let status = supervisor.wait_for("three generations", |status| status.generations.len() == 3).await?;
    let own = procfs::udp_inodes(supervisor.process.pid())?;
    let mut seen = std::collections::BTreeSet::new();
    for generation in &status.generations {
        let sockets = procfs::udp_inodes(generation.pid.context("it runs")?)?;
        assert_eq!(sockets.len(), 1, "{sockets:?}");
        for inode in sockets {
            assert!(own.contains(&inode), "the supervisor does not hold socket {inode}");
            assert!(seen.insert(inode), "two generations hold socket {inode}");
        }
    }
    Ok(())
}

/// Guards against a bind during an upgrade, which can fail and costs when there are many sockets: members are used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_binds_no_socket_when_there_are_members_to_use_again() -> anyhow::Result<()> {
    let supervisor = echo(&["--probation", "0s"]).await?;
    let sockets = async || {
        supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
        procfs::udp_inodes(supervisor.process.pid())
    };
    supervisor.upgrade().await?;
    let after_one = sockets().await?;
    for _ in 0..6 {
        supervisor.upgrade().await?;
        assert_eq!(sockets().await?, after_one);
    }
    Ok(())
}

/// Guards against a half-dead client end: an echo session whose server is gone is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_closed_at_the_drain_deadline_and_not_before() -> anyhow::Result<()> {
    let supervisor = echo(&["--probation", "0s", "--drain-timeout", "2s"]).await?;
    let session = Session::connect(supervisor.address().await?).await?;
    supervisor.upgrade().await?;
    let drained = std::time::Instant::now();
    wait::until(PATIENCE, "the end of the session", || Ok(session.ended().is_some())).await?;
    assert!(drained.elapsed() > Duration::from_millis(1_500), "{:?}", drained.elapsed());
    supervisor.wait_for("the end of its generation", |status| status.state(1) == "gone").await?;
    Ok(())
}
