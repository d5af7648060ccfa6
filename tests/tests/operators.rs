//! What operators get from a relay's internal listener, beside its traffic counters.

use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use tests::client::scrape;
use tests::starved::Starved;
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{program, relay};
use tokio::net::TcpStream;

/// A supervised node with every kind of listener.
async fn supervised(flags: &[&str]) -> anyhow::Result<Supervisor> {
    let setup = Setup::new(program::relay()?)?.flags(["--probation", "0s"]).flags(flags);
    let unix = setup.folder().join("relay.sock").display().to_string();
    let listeners =
        ["--listen-tcp-bind", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0", "--listen-unix-bind", &unix];
    setup.child(relay::OPEN).child(listeners).serve().await
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
