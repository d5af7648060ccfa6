//! What operators get from a relay's internal listener, beside its traffic counters.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use tests::client::media;
use tests::client::scrape;
use tests::client::webtransport::{Media, Session};
use tests::starved::Starved;
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{program, relay};
use tokio::net::TcpStream;

/// A supervised node with every kind of listener.
async fn supervised(args: &[String]) -> anyhow::Result<Supervisor> {
    let setup = Setup::new(program::relay()?)?.flags(["--probation", "0s"]);
    let unix = setup.folder().join("relay.sock").display().to_string();
    let listeners =
        ["--listen-tcp-bind", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0", "--listen-unix-bind", &unix];
    setup.child(relay::OPEN).child(listeners).child(args).serve().await
}

async fn listener(supervisor: &Supervisor, name: &str) -> anyhow::Result<SocketAddr> {
    let status = supervisor.status().await?;
    let listener = status.listeners.iter().find(|listener| listener.name == name).context("it is listed")?;
    listener.address.parse().context("its address")
}

/// Guards the one signal of a relay that has run out of descriptors: every other one looks healthy, and the page itself
/// comes only when it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_accepts_are_counted_for_the_node_and_a_stall_is_shown() -> anyhow::Result<()> {
    let supervisor = supervised(&[]).await?;
    let (tcp, internal) = (listener(&supervisor, "tcp").await?, listener(&supervisor, "internal").await?);
    let value = async |series: String| {
        let page = scrape::get(internal, "/metrics").await?;
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("moq_relay_{series} ")).map(str::to_owned));
        let line = line.with_context(|| format!("{series} in {page}"))?;
        line.parse::<f64>().with_context(|| format!("{series} is {line}"))
    };
    let failures = |listener, class| format!("accept_failures_total{{listener=\"{listener}\",class=\"{class}\"}}");
    let stalled = |listener| format!("accept_stalled_seconds{{listener=\"{listener}\"}}");
    for name in ["tcp", "unix", "internal"] {
        for class in ["connection", "exhausted", "unknown"] {
            ensure!(value(failures(name, class)).await? == 0.0, "{name} {class}");
        }
        ensure!(value(stalled(name)).await? == 0.0, "{name}");
    }

    let first = supervisor.status().await?.active().and_then(|active| active.pid).context("it has a process")?;
    let starved = Starved::of(first)?;
    let waiting = TcpStream::connect(tcp).await?;
    // After the sixth it waits for at least 1.6 s.
    let tries = || supervisor.process.count("accept failed");
    wait::until(PATIENCE, "six tries", || Ok(tries() >= 6)).await?;
    drop(starved);
    let stall = value(stalled("tcp")).await?;
    ensure!(stall > 0.0, "{stall}");
    wait::eventually(
        PATIENCE,
        "the end of the stall",
        async || Ok((value(stalled("tcp")).await? == 0.0).then_some(())),
    )
    .await?;
    let failed = value(failures("tcp", "exhausted")).await?;
    ensure!(failed >= 6.0, "{failed}");
    drop(waiting);

    supervisor.upgrade().await?;
    supervisor.wait_for("the new one alone", |status| status.generations.len() == 1).await?;
    ensure!(value(failures("tcp", "exhausted")).await? == failed, "it was {failed}");
    Ok(())
}

/// The sessions that the page lists.
async fn sessions(internal: SocketAddr, query: &str) -> anyhow::Result<Vec<Value>> {
    let page: Value = serde_json::from_str(&scrape::get(internal, &format!("/sessions{query}")).await?)?;
    Ok(page["sessions"].as_array().context("a list of sessions")?.clone())
}

/// Guards those who look for whom a node serves, and what they must not find there: the credentials of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_sessions_are_listed_by_filter_and_without_their_credentials() -> anyhow::Result<()> {
    const TOKEN: &str = "s3cr3t-0f-th3-cl9st3r";
    let token = tempfile::NamedTempFile::new()?;
    std::fs::write(token.path(), TOKEN)?;
    let args = ["--cluster-token".to_owned(), token.path().display().to_string()];
    let supervisor = supervised(&args).await?;
    let (quic, internal) = (supervisor.address().await?, listener(&supervisor, "internal").await?);
    ensure!(sessions(internal, "").await?.is_empty());

    let origin = media::origin();
    let target = format!("/room/a?jwt={TOKEN}");
    let peer = Session::connect_to(quic, &target, &Media::both(&origin)).await?;
    let viewer = Session::connect_to(quic, "/room/b", &Media::subscribe(&origin)).await?;
    let all = wait::eventually(PATIENCE, "both are listed", async || {
        Ok(Some(sessions(internal, "").await?).filter(|all| all.len() == 2))
    });
    let all = all.await?;
    for session in &all {
        ensure!(session["transport"] == "quic" && session["server_name"] == "localhost", "{session}");
        ensure!(
            session["local"].as_str().is_some_and(|local| local.ends_with(&format!(":{}", quic.port()))),
            "{session}"
        );
        ensure!(session["id"].as_str().is_some_and(|id| id.len() == 32) && session["started"].is_u64(), "{session}");
    }
    for (query, paths) in [
        ("?path=room/a", vec!["/room/a"]),
        ("?path=room/**&remote=10.0.0.0/8", vec![]),
        ("?remote=::1&role=subscriber", vec!["/room/b"]),
        ("?transport=tcp", vec![]),
    ] {
        let found = sessions(internal, query).await?;
        let found: Vec<_> = found.iter().filter_map(|session| session["path"].as_str()).collect();
        ensure!(found == paths, "{query}: {found:?} of {all:?}");
    }

    let (status, refused) = scrape::request(internal, "GET", &format!("/sessions?jwt={TOKEN}")).await?;
    ensure!(status == 400 && refused.starts_with("unknown filter"), "{status} {refused}");
    let (status, answer) = scrape::request(internal, "POST", "/sessions/revalidate").await?;
    ensure!(status == 501 && answer.starts_with("nothing to revalidate"), "{status} {answer}");
    for page in ["/sessions", "/nodes", "/metrics", "/health"] {
        ensure!(!scrape::get(internal, page).await?.contains(TOKEN), "{page}");
    }
    ensure!(!refused.contains(TOKEN), "{refused}");

    drop(viewer);
    wait::eventually(PATIENCE, "the viewer is gone", async || {
        Ok((sessions(internal, "").await?.len() == 1).then_some(()))
    })
    .await?;
    // The page is of the generation that answers: the peer is in the other one.
    supervisor.upgrade().await?;
    wait::eventually(PATIENCE, "the new generation answers", async || {
        Ok(sessions(internal, "").await?.is_empty().then_some(()))
    })
    .await?;
    ensure!(peer.is_open());
    Ok(())
}
