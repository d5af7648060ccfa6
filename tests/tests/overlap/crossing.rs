//! Media from one generation to another.

use crate::clients::{RATE, Staying, Watching, supervised};
use anyhow::Context as _;
use moq_tokio::Restart;
use tests::client::media::{self, Publisher};
use tests::client::native::{self, Scheme};
use tests::client::webtransport::{Media, Session};
use tests::supervisor::Setup;
use tests::wait::{self, PATIENCE};
use tests::{procfs, program, relay};

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
    with_it.has_all_to(old.publisher.sent()).await?;
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
