//! Real media through a supervised relay while it is replaced, with clients on two QUIC stacks.

use anyhow::{Context as _, ensure};
use moq_tokio::Restart;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::native::{self, Scheme};
use tests::client::webtransport::{Media, Session};
use tests::supervisor::{Setup, Status, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{program, relay};

/// Frames a second of each publisher.
const RATE: u32 = 50;

/// A supervised relay with two workers that anybody may use.
async fn supervised(flags: &[&str]) -> anyhow::Result<Supervisor> {
    let workers = ["--runtime-workers", "2"];
    Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).child(workers).serve().await
}

/// A publisher and two subscribers, each with a WebTransport session of its own that ignores any GOAWAY.
struct Unaware {
    _publisher: Publisher,
    sessions: Vec<Session>,
    subscribers: Vec<Subscriber>,
}

impl Unaware {
    async fn connect(server: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let source = media::origin();
        let publisher = Publisher::start(&source, path, RATE)?;
        let mut sessions = vec![Session::connect(server, &Media::publish(&source)).await?];
        let mut subscribers = Vec::new();
        for _ in 0..2 {
            let sink = media::origin();
            sessions.push(Session::connect(server, &Media::subscribe(&sink)).await?);
            subscribers.push(Subscriber::start(&sink, path));
        }
        for subscriber in &subscribers {
            subscriber.wait_for(1, PATIENCE).await?;
        }
        Ok(Self { _publisher: publisher, sessions, subscribers })
    }
}

/// Guards the main promise to those who do not know what a GOAWAY is: not a frame is lost until the drain deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn established_sessions_notice_nothing_until_their_deadline() -> anyhow::Result<()> {
    const DRAIN: Duration = Duration::from_secs(4);
    let supervisor = supervised(&["--probation", "1s", "--drain-timeout", "4s"]).await?;
    let server = supervisor.address().await?;
    let old = Unaware::connect(server, "old").await?;
    supervisor.wait_for("three sessions", |status| status.sessions(1) == 3).await?;

    supervisor.process.signal(nix::sys::signal::Signal::SIGUSR2)?;
    supervisor.wait_for("the probation", |status| status.state(1) == "standby").await?;
    ensure!(old.sessions.iter().all(|session| !session.told()), "a GOAWAY in the probation");
    let young = Unaware::connect(server, "young").await?;
    supervisor.wait_for("the commit", |status| status.state(1) == "draining").await?;
    let committed = Instant::now();
    for session in &old.sessions {
        assert_eq!(session.goaway(PATIENCE).await?, "", "ordinary clients get an empty URI");
    }
    let status = supervisor.status().await?;
    assert_eq!((status.sessions(1), status.sessions(2)), (3, 3), "{status:?}");

    // Half way to the deadline nothing has been lost on either side.
    wait::until(PATIENCE, "half of the drain", || Ok(committed.elapsed() >= DRAIN / 2)).await?;
    for subscriber in old.subscribers.iter().chain(&young.subscribers) {
        let report = subscriber.report();
        assert_eq!((report.missing, report.duplicates, report.interruptions), (0, 0, 0), "{report:?}");
        assert!(report.longest_gap < Duration::from_secs(1), "{report:?}");
    }
    for session in &old.sessions {
        let end = session.closed(PATIENCE).await?;
        // Each session's own deadline is the time of its GOAWAY plus the timeout less the spread: milliseconds for three.
        assert!(committed.elapsed() >= DRAIN - Duration::from_millis(400), "{:?}: {end}", committed.elapsed());
        assert!(end.to_string().contains("goaway timeout"), "{end}");
    }
    supervisor.process.wait_for_line("deadline: 3 closed", PATIENCE).await?;
    supervisor.wait_for("the end of the old generation", |status| status.state(1) == "gone").await?;
    assert!(young.sessions.iter().all(Session::is_open));
    for subscriber in &young.subscribers {
        assert_eq!(subscriber.report().missing, 0, "{:?}", subscriber.report());
    }
    Ok(())
}

/// Guards against the restart of today, after which every client with default settings is gone for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_default_settings_come_over() -> anyhow::Result<()> {
    // They keep their old session for 10 s after the new one is there, so that is how long a drain takes with them.
    let supervisor = supervised(&["--probation", "500ms", "--drain-timeout", "20s"]).await?;
    let server = supervisor.address().await?;
    let mut connections = Vec::new();
    let mut flows = Vec::new();
    for (path, scheme) in [("quic", Scheme::Quic), ("webtransport", Scheme::Https)] {
        let (source, sink) = (media::origin(), media::origin());
        let url = native::url(scheme, server)?;
        let publisher = Publisher::start(&source, path, RATE)?;
        connections.push(native::publish(&source, url.clone(), Restart::Redial).await?);
        connections.push(native::subscribe(&sink, url, Restart::Redial).await?);
        let subscriber = Subscriber::start(&sink, path);
        subscriber.wait_for(publisher.sent(), PATIENCE).await?;
        flows.push((publisher, subscriber));
    }

    supervisor.upgrade().await?;
    let over = |status: &Status| status.generations.len() == 1 && status.sessions(2) == 4;
    supervisor.wait_for("all four clients on the new generation alone", over).await?;
    supervisor.process.wait_for_line("drained", PATIENCE).await?;
    for (publisher, subscriber) in &flows {
        // A group may come twice, once by each session.
        let report = subscriber.wait_for_all(publisher.sent() + u64::from(RATE), PATIENCE).await?;
        assert!(report.longest_gap < Duration::from_secs(2), "{report:?}");
    }
    assert!(connections.iter().all(moq_tokio::Connection::connected));
    Ok(())
}

/// Guards clients that pin a generated certificate, as browsers must.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generated_certificate_is_the_same_after_every_upgrade() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    let sink = media::origin();
    let fingerprint = async || {
        let session = Session::connect(server, &Media::subscribe(&sink)).await?;
        session.fingerprint().context("a certificate was presented")
    };
    let first = fingerprint().await?;
    for _ in 0..3 {
        supervisor.upgrade().await?;
        assert_eq!(fingerprint().await?, first);
    }
    Ok(())
}

/// Guards clients behind a NAT that changes its mind: also while they are told to go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_that_changes_its_address_keeps_its_draining_generation() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "0s", "--drain-timeout", "5m"]).await?;
    let old = Unaware::connect(supervisor.address().await?, "old").await?;
    supervisor.upgrade().await?;
    for _ in 0..20 {
        for session in &old.sessions {
            session.rebind()?;
        }
        let next = old.subscribers.iter().filter_map(|subscriber| subscriber.report().last).max().unwrap_or(0) + 2;
        for subscriber in &old.subscribers {
            subscriber.wait_for(next, PATIENCE).await?;
        }
    }
    assert!(old.sessions.iter().all(Session::is_open));
    let status = supervisor.wait_for("three sessions in the old one", |status| status.sessions(1) == 3).await?;
    let foreign: u64 = status.generations.iter().map(|generation| generation.foreign).sum();
    assert_eq!(foreign, 0, "{status:?}");
    for subscriber in &old.subscribers {
        assert_eq!(subscriber.report().missing, 0, "{:?}", subscriber.report());
    }
    Ok(())
}

/// Guards the process table: a generation that nobody uses any more is gone at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_without_sessions_ends_right_after_the_commit() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "0s", "--drain-timeout", "5m"]).await?;
    supervisor.upgrade().await?;
    let committed = Instant::now();
    supervisor.wait_for("the new one alone", |status| status.generations.len() == 1).await?;
    assert!(committed.elapsed() < Duration::from_secs(3), "{:?}", committed.elapsed());
    Ok(())
}
