//! Today's moq-relay, restarted as a service manager does it: SIGTERM, wait for its end, start it again.

use crate::fleet::Fleet;
use crate::stubborn::Crowd;
use crate::{Options, say};
use anyhow::Context as _;
use nix::sys::signal::Signal;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tests::Relay;
use tests::process::Launch;
use tests::relay;
use tests::report::{Report, count, milliseconds};

/// How long such a relay may take to end: its drain and more.
const END: Duration = Duration::from_secs(30);

/// Runs it with its default drain and with a short one, and notes the figures. They have no bounds: they are not ours.
pub(crate) async fn measure(peer: &Path, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    for drain in ["10s", "2s"] {
        say(&format!("today's relay, restarted once, draining {drain}"))?;
        let launch = launch(peer, drain)?;
        let relay = Relay::of(launch.start()?).await?;
        let fleet = Fleet::join(relay.address, options).await?;
        let relay = restart(relay, &launch).await?;
        tokio::time::sleep(options.every()).await;
        let noticed = fleet.noticed().await;
        let name = |what: &str| format!("today's relay, drain {drain}: {what}");
        report.note(&name("frames delivered"), count(noticed.received), "");
        report.note(&name("frames missing"), count(noticed.missing), "");
        report.note(&name("frames that came twice"), count(noticed.duplicates), "");
        report.note(&name("clients that gave up"), count(noticed.gone), "");
        report.note(&name("longest gap"), milliseconds(noticed.gap_max), "ms");
        drop(relay);
    }
    say("today's relay, restarted once, under clients that ignore GOAWAY")?;
    let launch = launch(peer, "2s")?;
    let relay = Relay::of(launch.start()?).await?;
    let crowd = Crowd::join(relay.address, options).await?;
    let relay = restart(relay, &launch).await?;
    tokio::time::sleep(options.every()).await;
    crowd.catch_up().await?;
    let noticed = crowd.noticed();
    report.note("today's relay, ignoring GOAWAY: frames missing", count(noticed.missing), "");
    report.note("today's relay, ignoring GOAWAY: frames that came twice", count(noticed.duplicates), "");
    report.note("today's relay, ignoring GOAWAY: longest gap", milliseconds(noticed.longest_gap), "ms");
    drop(relay);
    Ok(())
}

/// On a port that is free now: the restarted one has to come back to it.
fn launch(peer: &Path, drain: &str) -> anyhow::Result<Launch> {
    let listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, relay::lasting_port()?)).to_string();
    let args = ["--listen", &listen, "--listen-tls-generate", "localhost", "--auth-public", "**"];
    Ok(Launch::new(peer).args(args).args(["--drain-timeout", drain]))
}

async fn restart(mut relay: Relay, launch: &Launch) -> anyhow::Result<Relay> {
    relay.process.signal(Signal::SIGTERM)?;
    relay.process.wait(END).await.context("the end of today's relay")?;
    Relay::of(launch.start()?).await
}
