//! Generations that overlap are one node, whatever becomes of their supervisor meanwhile.

use crate::service::Service;
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::scrape::Scraper;
use tests::client::webtransport::{Media, Session};
use tests::wait::PATIENCE;
use tests::{client, program, relay};

const FLAGS: [&str; 4] = ["--probation", "100ms", "--drain-timeout", "5m"];

/// A viewer of `path` in a session of its own.
async fn watch(server: SocketAddr, path: &str) -> anyhow::Result<(Subscriber, Session)> {
    let sink = media::origin();
    let session = Session::connect(server, &Media::subscribe(&sink)).await?;
    Ok((Subscriber::start(&sink, path), session))
}

/// Guards the links, which the supervisor makes and has no part in: killed, they stay; another one makes none again; the next
/// generation is linked with all. And the totals of those that have gone, which it keeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_and_totals_outlive_a_killed_and_a_replaced_supervisor() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    let args = [&relay::OPEN[..], &["--internal-listen", "127.0.0.1:0"]].concat();
    service.relay.becomes(&program::relay()?, &args)?;
    let status = service.serve().await?;
    let address = |name: &str| -> anyhow::Result<SocketAddr> {
        let listener = status.listeners.iter().find(|listener| listener.name == name).context("it is listed")?;
        Ok(client::reachable(listener.address.parse()?))
    };
    let (server, operators) = (address("quic")?, address("internal")?);
    let scraper = Scraper::start(operators, true);
    let source = media::origin();
    let publisher = Publisher::start(&source, "old", 60)?;
    let publishing = Session::connect(server, &Media::publish(&source)).await?;
    // A broadcast that somebody watches: the first viewer of all may be given the publisher's oldest group before the present.
    let first = watch(server, "old").await?;
    first.0.wait_for(1, PATIENCE).await?;
    assert_eq!(service.upgrade().await?, 2);
    let second = watch(server, "old").await?;
    let all = async |viewers: &[&Subscriber]| {
        for viewer in viewers {
            viewer.wait_for(publisher.sent() + 60, PATIENCE).await?;
            let report = viewer.report();
            ensure!((report.missing, report.duplicates, report.interruptions) == (0, 0, 0), "{report:?}");
        }
        anyhow::Ok(())
    };
    all(&[&second.0]).await?;

    service.kill().await?;
    all(&[&second.0]).await?;
    service.serve().await?;
    all(&[&second.0]).await?;
    service.replace_program()?;
    assert_eq!(service.upgrade().await?, 3);
    let third = watch(server, "old").await?;
    all(&[&second.0, &third.0]).await?;
    assert_eq!(service.lines_with(" linked "), 6, "three pairs, each said by both\n{}", service.tail());

    // The first one goes; its counters stay.
    drop((publishing, first));
    service.wait_for("the end of the first one", |status| status.state(1) == "gone").await?;
    drop((second, third));
    service.wait_for("the third one alone", |status| status.generations.len() == 1).await?;
    let scrapes = scraper.seen().scrapes;
    tests::wait::until(PATIENCE, "more scrapes", || Ok(scraper.seen().scrapes > scrapes + 10)).await?;
    let seen = scraper.seen();
    ensure!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    assert_eq!(seen.last["moq_relay_sessions_opened_total{tier=\"\"}"], 4, "{:?}", seen.last);
    assert_eq!(seen.last["moq_relay_sessions_closed_total{tier=\"\"}"], 4, "{:?}", seen.last);
    Ok(())
}
