//! Media across generations: publishers and subscribers of one broadcast in different processes of one node.

use anyhow::Context as _;
use moq_net::Versions;
use moq_tokio::Restart;
use std::net::SocketAddr;
use std::time::Duration;
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::native::{self, Scheme};
use tests::client::webtransport::{Media, Session};
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{procfs, program, relay};

/// Frames a second of each publisher.
const RATE: u32 = 60;

/// How many frames a subscriber has to get before something is said about it: several groups.
const STRETCH: u64 = 100;

/// A supervised relay with two workers that anybody may use, which lets its old generations live as long as a test does.
async fn supervised(flags: &[&str]) -> anyhow::Result<Supervisor> {
    let setup = Setup::new(program::relay()?)?.flags(["--drain-timeout", "5m"]).flags(flags);
    setup.child(relay::OPEN).child(["--runtime-workers", "2"]).serve().await
}

/// A publisher in one session that ignores any GOAWAY.
struct Staying {
    publisher: Publisher,
    _session: Session,
}

impl Staying {
    async fn publish(server: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let source = media::origin();
        let publisher = Publisher::start(&source, path, RATE)?;
        Ok(Self { publisher, _session: Session::connect(server, &Media::publish(&source)).await? })
    }
}

/// A subscriber in one session that ignores any GOAWAY.
struct Watching {
    subscriber: Subscriber,
    _session: Session,
}

impl Watching {
    async fn start(server: SocketAddr, path: &str) -> anyhow::Result<Self> {
        Self::start_with(server, path, Versions::default()).await
    }

    /// In a version without GOAWAY: its session is never told to go, so that it may subscribe at any time.
    async fn start_untold(server: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let version: moq_net::Version = "moq-lite-03".parse().map_err(|error| anyhow::anyhow!("{error}"))?;
        Self::start_with(server, path, version.into()).await
    }

    async fn start_with(server: SocketAddr, path: &str, versions: Versions) -> anyhow::Result<Self> {
        let sink = media::origin();
        let session = Session::connect_with(server, &Media::subscribe(&sink), versions).await?;
        Ok(Self { subscriber: Subscriber::start(&sink, path), _session: session })
    }

    /// Watches from now on until as much has been sent as is worth saying something about, and then that it is all there.
    async fn gets_all(&self, publisher: &Publisher) -> anyhow::Result<()> {
        self.subscriber.wait_for(publisher.sent() + STRETCH, PATIENCE).await?;
        self.has_all()
    }

    fn has_all(&self) -> anyhow::Result<()> {
        let report = self.subscriber.report();
        anyhow::ensure!((report.missing, report.duplicates, report.interruptions) == (0, 0, 0), "{report:?}");
        anyhow::ensure!(report.longest_gap < Duration::from_secs(1), "{report:?}");
        Ok(())
    }
}

/// Guards the broadcast of a publisher that has not followed yet: whoever comes new would find an empty node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_stays_is_seen_on_the_new_generation() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    let old = Staying::publish(server, "old").await?;
    let with_it = Watching::start(server, "old").await?;
    with_it.subscriber.wait_for(1, PATIENCE).await?;
    supervisor.upgrade().await?;
    let new = Watching::start(server, "old").await?;
    new.gets_all(&old.publisher).await?;
    with_it.has_all()?;
    let status = supervisor.wait_for("three sessions", |status| status.sessions(1) + status.sessions(2) == 3).await?;
    assert_eq!((status.sessions(1), status.sessions(2)), (2, 1), "the link is nobody's session");
    Ok(())
}

/// Guards viewers that have not followed yet: a publisher that comes new, or has followed, would be gone for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_that_stays_sees_publishers_of_the_new_generation() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    let old = Watching::start_untold(server, "new").await?;
    supervisor.wait_for("the session", |status| status.sessions(1) == 1).await?;
    supervisor.upgrade().await?;
    let new = Staying::publish(server, "new").await?;
    old.gets_all(&new.publisher).await
}

/// Guards the moment at which a publisher moves: it is in both generations for a while, then in the new one alone, and
/// its viewers in either must not see a seam.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_moves_over_leaves_no_seam_on_either_side() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "1s"]).await?;
    let server = supervisor.address().await?;
    let source = media::origin();
    let publisher = Publisher::start(&source, "moving", RATE)?;
    let url = native::url(Scheme::Quic, server)?;
    let _moving = native::publish(&source, url, Restart::Redial).await?;
    let old = Watching::start(server, "moving").await?;
    old.subscriber.wait_for(1, PATIENCE).await?;

    supervisor.process.signal(nix::sys::signal::Signal::SIGUSR2)?;
    supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
    let new = Watching::start(server, "moving").await?;
    new.subscriber.wait_for(publisher.sent(), PATIENCE).await?;
    supervisor.wait_for("the publisher in both", |status| (status.sessions(1), status.sessions(2)) == (2, 2)).await?;
    for watching in [&old, &new] {
        watching.gets_all(&publisher).await?;
    }
    supervisor.wait_for("it in the new one alone", |status| (status.sessions(1), status.sessions(2)) == (1, 2)).await?;
    for watching in [&old, &new] {
        watching.gets_all(&publisher).await.context(format!("{:?}", supervisor.status().await?))?;
    }
    Ok(())
}

/// Guards the mesh: with three generations there are two ways from each to each, and nothing may come by both or go in
/// circles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_generations_see_each_other() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    let mut publishers = Vec::new();
    let mut watching = Vec::new();
    for generation in 1..=3 {
        publishers.push(Staying::publish(server, &format!("of-{generation}")).await?);
        for other in 1..=3 {
            watching.push((other, Watching::start_untold(server, &format!("of-{other}")).await?));
        }
        supervisor.wait_for("its sessions", |status| status.sessions(generation) == 4).await?;
        if generation < 3 {
            supervisor.upgrade().await?;
        }
    }
    for (of, watching) in &watching {
        let publisher = &publishers[of - 1].publisher;
        watching.gets_all(publisher).await.with_context(|| format!("a viewer of generation {of}'s publisher"))?;
    }
    // The middle one goes: the others have their own link.
    let middle = supervisor.status().await?.generation(2).and_then(|middle| middle.pid).context("generation 2")?;
    tests::process::signal_process(middle, nix::sys::signal::Signal::SIGKILL)?;
    supervisor.wait_for("its end", |status| status.state(2) == "gone").await?;
    for (index, (of, watching)) in watching.iter().enumerate() {
        if *of != 2 && !(3..6).contains(&index) {
            watching.gets_all(&publishers[of - 1].publisher).await?;
        }
    }
    Ok(())
}

/// Guards a rollback: what was on the failed generation is lost, what was on the old one goes on, and nothing of the link
/// is left in its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_leaves_the_old_generation_as_it_was() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "5m"]).await?;
    let server = supervisor.address().await?;
    let old = Staying::publish(server, "old").await?;
    let with_it = Watching::start(server, "old").await?;
    supervisor.process.signal(nix::sys::signal::Signal::SIGUSR2)?;
    supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
    Watching::start(server, "old").await?.gets_all(&old.publisher).await?;
    let output = supervisor.command("rollback", &[]).await?;
    anyhow::ensure!(output.status.success(), "{}", output.stderr);
    supervisor.wait_for("the old one alone", |status| status.generations.len() == 1).await?;
    with_it.gets_all(&old.publisher).await?;
    Watching::start(server, "old").await?.gets_all(&old.publisher).await
}

/// Guards the memory of a generation whose peer hangs: what it can't take must not be kept for it for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_hangs_costs_a_bounded_amount_of_memory() -> anyhow::Result<()> {
    // 2.4 MB a second; with a link that waited for ever, and a viewer that accepts whatever is younger than 30 s.
    const FAST: u32 = 2_000;
    const ALLOWED_KIB: u64 = 64 << 10;
    let setup = Setup::new(program::relay()?)?.flags(["--drain-timeout", "5m", "--probation", "0s"]);
    let setup = setup.child(relay::OPEN).child(["--runtime-workers", "2", "--cache-duration", "1s"]);
    let supervisor = setup.env("RUST_LOG", "info,relay::overlap=debug").serve().await?;
    let server = supervisor.address().await?;
    let old = Watching::start_untold(server, "fast").await?;
    supervisor.wait_for("the session", |status| status.sessions(1) == 1).await?;
    supervisor.upgrade().await?;
    let source = media::origin();
    let publisher = Publisher::start(&source, "fast", FAST)?;
    let _session = Session::connect(server, &Media::publish(&source)).await?;
    old.subscriber.wait_for(publisher.sent() + u64::from(FAST), PATIENCE).await?;
    let status = supervisor.status().await?;
    let process = |number| status.generation(number).and_then(|one| one.pid).context("it has a process");
    let (hangs, serves) = (process(1)?, process(2)?);
    let before = procfs::rss_kib(serves)?;
    tests::process::signal_process(hangs, nix::sys::signal::Signal::SIGSTOP)?;
    supervisor.process.wait_for_line("link closed", 2 * PATIENCE).await?;
    let during = procfs::rss_kib(serves)?;
    assert!(during < before + ALLOWED_KIB, "{before} KiB before, {during} KiB when the link was closed");
    let sent = publisher.sent();
    wait::until(PATIENCE, "3 s more of media", || Ok(publisher.sent() > sent + 3 * u64::from(FAST))).await?;
    let after = procfs::rss_kib(serves)?;
    assert!(after < before + ALLOWED_KIB, "{before} KiB before, {after} KiB after the link was closed");
    Ok(())
}
