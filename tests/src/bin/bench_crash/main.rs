//! What a crash of the relay costs: SIGKILL to the process that serves, again and again, under load.
//!
//! Each crash of ours is the first one of its supervisor. Those that follow within a minute wait longer each time, so that a
//! crash loop does not eat the machine (docs/design/lifecycle.md): that is no figure of this bench.
//!
//! Ours, whose supervisor starts a successor on the same sockets, and with `--peer` today's relay, which is started again as its
//! packaged unit has it: `RestartSec=5s`, here without the growth that `RestartSteps=` adds for each further crash. Prints a
//! table, writes the figures as JSON, and ends with status 1 if a bound does not hold.

mod clients;
mod handshakes;
mod service;

use anyhow::Context as _;
use clap::Parser;
use clients::Clients;
use handshakes::Handshakes;
use service::Service;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tests::report::{Report, count, milliseconds, quantile};
use tests::wait;

/// QUIC sends a first flight again after a second (RFC 9002 section 6.2.2), and that one is answered in some 50 ms.
const SLOWEST_MS: f64 = 1_200.0;
/// For clients whose connection is gone and who do not know it to find out, and to be back.
const BACK: Duration = Duration::from_secs(60);
/// From when everybody is back to the next crash.
const QUIET: Duration = Duration::from_secs(2);

/// Crashes under load, and what they cost.
#[derive(Debug, Parser)]
struct Options {
    /// Crashes of each relay.
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// Fresh handshakes a second.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Subscribers, of which one in ten watches a broadcast.
    #[arg(long, default_value_t = 200)]
    subscribers: usize,
    /// Publishers of 60 frames a second.
    #[arg(long, default_value_t = 4)]
    publishers: usize,
    /// Today's moq-relay, killed as often, in turn.
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// Where the figures go.
    #[arg(long, value_name = "PATH", default_value = "target/bench-crash.json")]
    json: PathBuf,
}

/// What came of the crashes of one relay.
#[derive(Default)]
struct Costs {
    /// From the crash to the end of the first handshake that was begun after it.
    next_handshake: Vec<Duration>,
    /// From the crash until a client knew, of all clients.
    known: Vec<Duration>,
    /// Clients that were not back in time.
    lost: u64,
    /// Clients that had not even noticed by then.
    unaware: u64,
    /// Per viewer and crash.
    missing: Vec<u64>,
    gaps: Vec<Duration>,
    handshakes: handshakes::Outcome,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let mut services = vec![Service::ours().await?];
    if let Some(peer) = &options.peer {
        services.push(Service::peer(peer).await?);
    }
    let mut report = Report::default();
    let mut costs: Vec<Costs> = services.iter().map(|_| Costs::default()).collect();
    // In turn, so that what else the machine does meets both alike.
    for crash in 1..=options.kills {
        for (service, costs) in services.iter_mut().zip(&mut costs) {
            say(&format!("{}: crash {crash} of {}", service.name(), options.kills))?;
            service.renew().await?;
            run(service, &options, costs).await.with_context(|| service.tail())?;
        }
    }
    for (service, costs) in services.iter().zip(&mut costs) {
        tell(service, costs, &mut report);
    }
    write!(std::io::stdout(), "\n{report}")?;
    report.write(&options.json)?;
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run(service: &mut Service, options: &Options, costs: &mut Costs) -> anyhow::Result<()> {
    let server = service.address();
    let clients = Clients::start(server, options.publishers, options.subscribers).await?;
    let handshakes = Handshakes::start(server, options.rate)?;
    clients.are_served(BACK).await?;
    let begun = Instant::now();
    wait::until(2 * QUIET, "a quiet time", || Ok(begun.elapsed() >= QUIET)).await?;
    clients.begin_anew();
    let crash = service.kill().await?;
    // Beside each other: the one that is not supervised serves nobody before it is started again.
    let (next, restarted) = tokio::join!(handshakes.first_after(crash, BACK), service.restart());
    restarted?;
    costs.next_handshake.push(next?);
    let back = clients.are_back(BACK).await;
    costs.lost += back.lost;
    costs.unaware += (options.publishers + options.subscribers).saturating_sub(back.known.len()) as u64;
    costs.known.extend(back.known.into_iter().map(|known| known.saturating_duration_since(crash)));
    for viewer in clients.viewers() {
        costs.missing.push(viewer.missing);
        costs.gaps.push(viewer.longest_gap);
    }
    costs.handshakes.add(handshakes.stop().await?);
    Ok(())
}

fn tell(service: &Service, costs: &mut Costs, report: &mut Report) {
    let ours = service.is_ours();
    let name = |figure: &str| format!("{}: {figure}", service.name());
    let mut figure = |text: &str, value: f64, unit: &'static str, at_most: Option<f64>| match at_most.filter(|_| ours) {
        Some(most) => report.bound(&name(text), value, unit, most),
        None => report.note(&name(text), value, unit),
    };
    let handshakes = &costs.handshakes;
    figure("handshakes", count(handshakes.all), "", None);
    figure("handshakes in flight at a crash", count(handshakes.in_flight), "", None);
    figure("handshakes failed, of those in flight at a crash", count(handshakes.failed), "", None);
    figure("handshakes failed, of all others", count(handshakes.failed_elsewhere), "", Some(0.0));
    let next = &mut costs.next_handshake;
    figure("crash to the next handshake, p50", milliseconds(quantile(next, 0.5)), "ms", Some(60.0));
    figure("crash to the next handshake, slowest", milliseconds(quantile(next, 1.0)), "ms", Some(SLOWEST_MS));
    let known = &mut costs.known;
    figure("crash until a publisher or viewer knows, p50", milliseconds(quantile(known, 0.5)), "ms", None);
    figure("crash until a publisher or viewer knows, p99", milliseconds(quantile(known, 0.99)), "ms", Some(200.0));
    figure("crash until a publisher or viewer knows, slowest", milliseconds(quantile(known, 1.0)), "ms", None);
    figure("clients that did not know within 60 s", count(costs.unaware), "", Some(0.0));
    figure("clients that did not come back within 60 s", count(costs.lost), "", None);
    let viewers = costs.missing.len().max(1) as u64;
    figure("frames missing, per viewer and crash", count(costs.missing.iter().sum()) / count(viewers), "", None);
    figure("largest gap of a viewer, p50", milliseconds(quantile(&mut costs.gaps, 0.5)), "ms", None);
    figure("largest gap of a viewer, slowest", milliseconds(quantile(&mut costs.gaps, 1.0)), "ms", None);
}

/// Says what is being measured.
fn say(what: &str) -> std::io::Result<()> {
    writeln!(std::io::stderr(), "measuring: {what}")
}
