//! How long a switch takes, and beside it, in alternation, how long today's relay takes to start.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use tests::client::handshake;
use tests::report::{Report, milliseconds, quantile};
use tests::supervisor::{Setup, Status, Supervisor};
use tests::tls::{self, Seen};
use tests::wait::{self, PATIENCE};
use tests::{program, relay};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// Times the switches, and the starts of `peer`.
pub(crate) async fn measure(switches: u32, peer: Option<&Path>, report: &mut Report) -> anyhow::Result<()> {
    let supervisor = Setup::new(program::relay()?)?.flags(["--probation", "0s"]).child(relay::OPEN).serve().await?;
    let mut control = Control::connect(&supervisor).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for generation in 2..2 + switches {
        ours.push(switch(&supervisor, &mut control, generation).await?);
        if let Some(peer) = peer {
            theirs.push(start(peer).await?);
        }
    }
    let ours_p50 = milliseconds(quantile(&mut ours, 0.5));
    report.bound("SIGUSR2 to switch, p50", ours_p50, "ms", 40.0);
    report.note("SIGUSR2 to switch, slowest", milliseconds(quantile(&mut ours, 1.0)), "ms");
    if peer.is_some() {
        let theirs_p50 = milliseconds(quantile(&mut theirs, 0.5));
        report.bound("the same, beside exec to first handshake of the peer, p50", ours_p50, "ms", theirs_p50);
        report.note("exec to first handshake of the peer, slowest", milliseconds(quantile(&mut theirs, 1.0)), "ms");
    }
    Ok(())
}

/// From the signal to the status that says that `generation` is active.
async fn switch(supervisor: &Supervisor, control: &mut Control, generation: u32) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    supervisor.process.signal(Signal::SIGUSR2)?;
    let took = loop {
        if control.status().await?.state(generation) == "active" {
            break begin.elapsed();
        }
        ensure!(begin.elapsed() < PATIENCE, "generation {generation} is not active after {PATIENCE:?}");
    };
    // The next switch begins when all is quiet again.
    supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    Ok(took)
}

/// From exec to the end of the first handshake, which begins as soon as the port is bound: one that came earlier would
/// only be sent again after a second, one that is in the socket's buffer waits for the relay and no longer.
async fn start(peer: &Path) -> anyhow::Result<Duration> {
    let port = relay::lasting_port()?;
    let server = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let config = tls::client(&["h3"], &Seen::default())?;
    let begin = Instant::now();
    let _process = relay::start_on(peer, port).await?;
    wait::within(PATIENCE, "a handshake with the peer", handshake::once(server, &config)).await??;
    Ok(begin.elapsed())
}

/// A connection to the control socket, which may ask again and again.
struct Control(BufReader<UnixStream>);

impl Control {
    async fn connect(supervisor: &Supervisor) -> anyhow::Result<Self> {
        Ok(Self(BufReader::new(UnixStream::connect(supervisor.control()).await.context("the control socket")?)))
    }

    async fn status(&mut self) -> anyhow::Result<Status> {
        self.0.write_all(b"{\"request\":\"status\"}\n").await?;
        let mut line = String::new();
        wait::within(PATIENCE, "a status", self.0.read_line(&mut line)).await??;
        serde_json::from_str(&line).with_context(|| format!("status said {line}"))
    }
}
