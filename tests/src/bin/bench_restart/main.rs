//! Measures `systemctl restart` and `systemctl reload` of the shipped unit under a real systemd, with the real relay.
//!
//! Both without probation, in turns, while fresh handshakes probe the service: how long each takes, how many probes
//! fail, and what the processes hold while an old and a new relay are alive. Beside them a unit in the same sandbox whose
//! programs do nothing: that much of the time is systemd's. Prints a table, writes the figures as JSON, and ends with status 1
//! if a bound does not hold. Needs root.

use anyhow::ensure;
use clap::Parser;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tests::client::handshake::Load;
use tests::client::media;
use tests::client::webtransport::{Media, Session};
use tests::procfs;
use tests::report::{Report, count, milliseconds, quantile};
use tests::systemd::{self, Sandbox, Service, Setup, Units};
use tests::wait;

/// How long a restart and a reload take, and what they cost.
#[derive(Debug, Parser)]
struct Options {
    /// Restarts, and as many reloads.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Probes (handshakes) in all, at least.
    #[arg(long, default_value_t = 4_000)]
    probes: usize,
    /// Probes a second.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Where the figures go.
    #[arg(long, value_name = "PATH", default_value = "target/bench-restart.json")]
    json: PathBuf,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let mut report = Report::default();
    systemd::inside(async |sandbox| {
        let setup = Setup::shipped(sandbox)?.flags(&["--probation", "0s", "--drain-timeout", "10m"]);
        let service = setup.install().await?;
        service.becomes_relay("")?;
        service.must("start").await?;
        measure(&service, &nothing(sandbox).await?, &options, &mut report).await?;
        overlap(&service, &mut report).await
    })?;
    write!(std::io::stdout(), "\n{report}")?;
    report.write(&options.json)?;
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Of one verb.
#[derive(Default)]
struct Times {
    ours: Vec<Duration>,
    nothing: Vec<Duration>,
}

/// A unit like ours of which nothing is left but what systemd itself does: its programs do nothing.
async fn nothing<'a>(sandbox: &'a Sandbox) -> anyhow::Result<Service<'a>> {
    const NAME: &str = "nothing.service";
    let unit = Units::shipped("moq-supervise.service")?
        .without("WatchdogSec=")?
        .changed("Type=notify", "Type=exec")?
        .changed("ExecStart=", "ExecStart=/usr/bin/sleep infinity")?
        .changed("ExecReload=", "ExecReload=/usr/bin/true")?
        .changed("ExecStopPost=", "ExecStopPost=-+/usr/bin/true")?
        .changed("StateDirectory=", "StateDirectory=nothing")?
        .changed("RuntimeDirectory=", "RuntimeDirectory=nothing")?;
    let service = Setup::named(sandbox, NAME)?.file(NAME, unit.text()).install().await?;
    service.must("start").await?;
    Ok(service)
}

/// Times restarts and reloads in turns, under probes.
async fn measure(
    service: &Service<'_>,
    nothing: &Service<'_>,
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<()> {
    let servers: [SocketAddr; 2] =
        [(Ipv6Addr::LOCALHOST, Service::PORT).into(), (Ipv4Addr::LOCALHOST, Service::PORT).into()];
    let load = Load::start(&servers, &["h3"], options.rate)?;
    let enough = Duration::from_secs(1) * u32::try_from(options.probes)? / options.rate.max(1);
    let mut pace = tokio::time::interval(enough / (2 * options.rounds).max(1));
    let (mut restarts, mut reloads) = (Times::default(), Times::default());
    for _ in 0..options.rounds {
        for (verb, times) in [("restart", &mut restarts), ("reload", &mut reloads)] {
            pace.tick().await;
            service.wait_for("one generation", |status| status.generations.len() == 1).await?;
            let begin = Instant::now();
            service.must(verb).await?;
            times.ours.push(begin.elapsed());
            let begin = Instant::now();
            nothing.must(verb).await?;
            times.nothing.push(begin.elapsed());
        }
    }
    wait::until(4 * enough, "enough probes", || Ok(load.so_far().total() >= options.probes)).await?;
    let mut probes = load.stop().await?;
    for (verb, times) in [("restart", &mut restarts), ("reload", &mut reloads)] {
        let (ours, nothing) = (quantile(&mut times.ours, 0.5), quantile(&mut times.nothing, 0.5));
        report.note(&format!("systemctl {verb}, p50"), milliseconds(ours), "ms");
        report.note(&format!("systemctl {verb}, slowest"), milliseconds(quantile(&mut times.ours, 1.0)), "ms");
        let name = format!("systemctl {verb} of a unit like it whose programs do nothing, p50");
        report.note(&name, milliseconds(nothing), "ms");
        let ratio = ours.as_secs_f64() / nothing.as_secs_f64();
        report.note(&format!("systemctl {verb}, ours to that one's"), ratio, "times");
    }
    report.note("probes", count(probes.total() as u64), "");
    report.bound("failed probes", count(probes.failed.len() as u64), "", 0.0);
    report.note("probe, p50", milliseconds(quantile(&mut probes.completed, 0.5)), "ms");
    report.note("probe, slowest", milliseconds(quantile(&mut probes.completed, 1.0)), "ms");
    for failure in probes.failed {
        writeln!(std::io::stderr(), "probe {failure}")?;
    }
    Ok(())
}

/// Memory of the processes while a session keeps the old relay alive beside the new one.
async fn overlap(service: &Service<'_>, report: &mut Report) -> anyhow::Result<()> {
    let server = (Ipv6Addr::LOCALHOST, Service::PORT).into();
    let _stays = Session::connect(server, &Media::subscribe(&media::origin())).await?;
    let before = service.active().await?;
    service.must("reload").await?;
    let both = service.wait_for("an overlap", |status| status.sessions(before) == 1).await?;
    ensure!(both.generations.len() == 2, "not two generations: {both:?}");
    let supervisor = procfs::rss_kib(service.supervisor().await?)?;
    report.note("memory of the supervisor in the overlap", mebibytes(supervisor), "MiB");
    let mut relays = service.processes("moq-relay")?;
    relays.sort_unstable();
    for (which, relay) in ["old", "new"].iter().zip(relays) {
        report.note(&format!("memory of the {which} relay in the overlap"), mebibytes(procfs::rss_kib(relay)?), "MiB");
    }
    Ok(())
}

fn mebibytes(kibibytes: u64) -> f64 {
    count(kibibytes) / 1_024.0
}
