//! One node of several processes, as its operators see it: totals and statistics through upgrades and crashes.

use anyhow::{Context as _, ensure};
use moq_stats::{Role, Tier, TrafficFrame};
use moq_tokio::Restart;
use std::net::SocketAddr;
use std::time::Duration;
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::native::{self, Scheme};
use tests::client::scrape::{self, Page, Scraper};
use tests::client::webtransport::{Media, Session};
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{client, process, program, relay};

/// Frames a second of each publisher.
const RATE: u32 = 60;

async fn supervised(flags: &[&str]) -> anyhow::Result<Supervisor> {
    let stats = ["--internal-listen", "127.0.0.1:0", "--stats-enabled", "--stats-node", "here"];
    Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).child(stats).serve().await
}

async fn operators(supervisor: &Supervisor) -> anyhow::Result<SocketAddr> {
    let status = supervisor.status().await?;
    let listener = status.listeners.iter().find(|listener| listener.name == "internal").context("it is listed")?;
    Ok(client::reachable(listener.address.parse()?))
}

/// A publisher and a viewer, each in a session that ignores any GOAWAY.
struct Pair {
    publisher: Publisher,
    viewer: Subscriber,
    _sessions: [Session; 2],
}

impl Pair {
    async fn connect(server: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let (source, sink) = (media::origin(), media::origin());
        let publisher = Publisher::start(&source, path, RATE)?;
        let publishing = Session::connect(server, &Media::publish(&source)).await?;
        let watching = Session::connect(server, &Media::subscribe(&sink)).await?;
        let viewer = Subscriber::start(&sink, path);
        viewer.wait_for(1, PATIENCE).await?;
        Ok(Self { publisher, viewer, _sessions: [publishing, watching] })
    }
}

fn open(page: &Page, what: &str) -> u64 {
    let sum = |suffix: &str| {
        let name = format!("moq_relay_{what}_{suffix}_total{{tier=\"\"");
        page.iter().filter(|(series, _)| series.starts_with(&name)).map(|(_, value)| value).sum::<u64>()
    };
    sum("opened") - sum("closed")
}

/// Guards those who bill and alert by counters: what goes down looks like a restart, and like traffic that never was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_total_goes_down_through_upgrades_and_each_session_counts_once() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "500ms", "--drain-timeout", "8s"]).await?;
    let (server, operators) = (supervisor.address().await?, operators(&supervisor).await?);
    assert_eq!(scrape::get(operators, "/health").await?, "ok\n");
    let scraper = Scraper::start(operators, true);
    let first = Pair::connect(server, "first").await?;
    let open_sessions = async |wanted: u64| {
        let what = format!("{wanted} sessions on the page");
        wait::eventually(PATIENCE, &what, async || {
            let page = scrape::metrics(operators).await?;
            Ok((open(&page, "sessions") == wanted).then_some(page))
        })
        .await
        .with_context(|| format!("{:?}", scraper.seen().last))
    };
    open_sessions(2).await?;
    for generation in 2..=3 {
        supervisor.upgrade().await?;
        // The old ones are there until the deadline: in the other process.
        let second = Pair::connect(server, &format!("of-{generation}")).await?;
        let both = if generation == 2 { 4 } else { 2 };
        open_sessions(both).await?;
        second.viewer.wait_for(second.publisher.sent() + 30, PATIENCE).await?;
        drop(second);
        supervisor.wait_for("the new one alone", |status| status.generations.len() == 1).await?;
        open_sessions(0).await?;
    }
    drop(first);
    let seen = scraper.seen();
    ensure!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    ensure!(seen.scrapes > 100, "{} scrapes", seen.scrapes);
    assert_eq!(seen.last["moq_relay_sessions_opened_total{tier=\"\"}"], 6, "{:?}", seen.last);
    Ok(())
}

/// Guards the same through a kill −9: whatever was on a page was in the supervisor's hands before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_total_goes_down_when_the_active_generation_is_killed() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "0s", "--drain-timeout", "5m"]).await?;
    let (server, operators) = (supervisor.address().await?, operators(&supervisor).await?);
    let scraper = Scraper::start(operators, false);
    for round in 0..3 {
        let pair = Pair::connect(server, &format!("round-{round}")).await?;
        pair.viewer.wait_for(pair.publisher.sent() + 60, PATIENCE).await?;
        let active = supervisor.status().await?.active().context("one is active")?.clone();
        process::signal_process(active.pid.context("it has a process")?, nix::sys::signal::Signal::SIGKILL)?;
        let next = active.generation + 1;
        supervisor.wait_for("its successor", |status| status.state(next) == "active").await?;
        let before = scraper.seen().scrapes;
        wait::until(PATIENCE, "scrapes of the successor", || Ok(scraper.seen().scrapes > before + 2)).await?;
    }
    let seen = scraper.seen();
    ensure!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    Ok(())
}

/// Guards health probes against a generation that hangs when it is to be replaced: it can't say that it has stopped answering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_predecessor_that_hangs_keeps_operators_waiting_for_a_bounded_time() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "5m", "--drain-timeout", "5m"]).await?;
    let operators = operators(&supervisor).await?;
    let before = scrape::metrics(operators).await?;
    let first = supervisor.status().await?.active().and_then(|active| active.pid).context("it has a process")?;
    process::signal_process(first, nix::sys::signal::Signal::SIGSTOP)?;
    supervisor.process.signal(nix::sys::signal::Signal::SIGUSR2)?;
    supervisor.wait_for("the switch", |status| status.state(2) == "active").await?;
    assert_eq!(scrape::get(operators, "/health").await?, "ok\n");
    let after = scrape::metrics(operators).await?;
    for (series, before) in before.iter().filter(|(series, _)| series.contains("_total")) {
        ensure!(after.get(series).is_some_and(|after| after >= before), "{series} was {before}: {after:?}");
    }
    process::signal_process(first, nix::sys::signal::Signal::SIGCONT)
}

/// Guards dashboards that watch the broadcast: one node of one name, whose rows are complete while two generations overlap, and
/// do not go down when the old one goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statistics_broadcast_is_one_and_complete_through_an_upgrade() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "500ms", "--drain-timeout", "4s"]).await?;
    let server = supervisor.address().await?;
    let pair = Pair::connect(server, "watched").await?;
    let sink = media::origin();
    // Paths with a dot are announced to nobody who does not root itself there.
    let mut url = native::url(Scheme::Quic, server)?;
    url.set_path("/.stats");
    let _connection = native::subscribe(&sink, url, Restart::Redial).await?;
    let origin = sink.consume();
    let (rows, mut seen) = tokio::sync::watch::channel(Vec::<TrafficFrame>::new());
    let reading = tokio::spawn(async move {
        loop {
            let read = async {
                let broadcast = origin.request_broadcast("node/here").await?;
                let consumer = moq_stats::Consumer::new(broadcast, moq_stats::consume::Config::new());
                let mut traffic = consumer.traffic(&Tier::default(), Role::Publisher).await?;
                while let Some(frame) = traffic.next().await? {
                    rows.send_modify(|rows| rows.push(frame));
                }
                anyhow::Ok(())
            };
            if read.await.is_err() {
                // Withdrawn for the time of two messages, or not there yet.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    let frames = |row: &TrafficFrame| row.get("watched").map_or(0, |traffic| traffic.frames);
    let mut reaches = async |wanted: u64| {
        let found = seen.wait_for(|rows| rows.last().is_some_and(|row| frames(row) >= wanted));
        wait::within(PATIENCE, &format!("{wanted} frames in the row"), async { found.await.map(|_| ()) }).await??;
        anyhow::Ok(())
    };
    reaches(60).await?;
    supervisor.upgrade().await?;
    // What the old generation counts is in the node's row, published by the new one.
    let now = pair.publisher.sent();
    reaches(now).await?;
    // The viewer follows, so that the row lives; the old one goes at its deadline.
    let after = Pair::connect(server, "watched").await?;
    supervisor.wait_for("the new one alone", |status| status.generations.len() == 1).await?;
    reaches(now + 60).await?;
    drop(after);
    reading.abort();
    let rows = seen.borrow().clone();
    for (before, after) in rows.iter().zip(rows.iter().skip(1)) {
        ensure!(frames(before) <= frames(after), "{} frames, then {}", frames(before), frames(after));
    }
    Ok(())
}
