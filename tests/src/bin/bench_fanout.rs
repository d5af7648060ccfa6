//! Measures what a frame costs the relay when one publisher has many subscribers, beside today's relay (`--peer`) in
//! the same run, alternated. With `--profile FILE` it records where our relay spends that time (perf, Linux).

use anyhow::Context as _;
use clap::Parser;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::native::{self, Scheme};
use tests::client::webtransport::{Media, Session};
use tests::process::Launch;
use tests::relay::OPEN;
use tests::report::{Report, count, milliseconds, quantile};
use tests::{Relay, procfs, program};

/// Fan-out: one publisher, many subscribers.
#[derive(Debug, Parser)]
struct Options {
    /// Subscribers.
    #[arg(long, default_value_t = 50)]
    subscribers: usize,
    /// Frames a second, 1 200 bytes each.
    #[arg(long, default_value_t = 60)]
    rate: u32,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Measurements of each relay.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Today's moq-relay.
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// Record a profile of our relay's last measurement here.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Where the figures go.
    #[arg(long, value_name = "PATH", default_value = "target/bench-fanout.json")]
    json: PathBuf,
}

/// One measurement.
struct Sample {
    /// Processor time of the relay per frame that a subscriber got.
    per_frame: Duration,
    /// Frames that subscribers got.
    delivered: u64,
    /// Frames that they did not get.
    missing: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let ours = program::relay()?;
    let mut report = Report::default();
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        writeln!(std::io::stderr(), "measuring: round {round} of {}", options.rounds)?;
        let profile = options.profile.as_deref().filter(|_| round == options.rounds);
        let sample = measure(&ours, &options, profile).await.context("our relay")?;
        report.bound(&format!("round {round}: frames missing"), count(sample.missing), "frames", 0.0);
        report.note(&format!("round {round}: frames delivered"), count(sample.delivered), "frames");
        mine.push(sample.per_frame);
        if let Some(peer) = &options.peer {
            theirs.push(measure(peer, &options, None).await.context("today's relay")?.per_frame);
        }
    }
    let median = quantile(&mut mine, 0.5);
    report.note("CPU per delivered frame, median", milliseconds(median) * 1_000.0, "us");
    if !theirs.is_empty() {
        let other = quantile(&mut theirs, 0.5);
        report.note("CPU per delivered frame of today's relay, median", milliseconds(other) * 1_000.0, "us");
        report.note("ours / today's", median.as_secs_f64() / other.as_secs_f64(), "ratio");
    }
    write!(std::io::stdout(), "\n{report}")?;
    report.write(&options.json)?;
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(relay: &Path, options: &Options, profile: Option<&Path>) -> anyhow::Result<Sample> {
    let relay = Relay::of(Launch::new(relay).args(OPEN).start()?).await?;
    let pid = relay.process.pid();
    let source = media::origin();
    let publisher = Publisher::start(&source, "fanout", options.rate)?;
    let publishing =
        native::publish(&source, native::url(Scheme::Quic, relay.address)?, moq_tokio::Restart::Redial).await?;
    let mut watching = Vec::new();
    for _ in 0..options.subscribers {
        let sink = media::origin();
        let session = Session::connect(relay.address, &Media::subscribe(&sink)).await?;
        let subscriber = Subscriber::start(&sink, "fanout");
        watching.push((sink, session, subscriber));
    }
    let begin = publisher.sent();
    for (_, _, subscriber) in &watching {
        subscriber.wait_for(begin, Duration::from_secs(20)).await?;
        subscriber.begin_anew(publisher.sent());
    }

    let perf = profile.map(|file| record(pid, options.seconds, file)).transpose()?;
    let (start, ticks) = (Instant::now(), procfs::cpu_ticks(pid)?);
    // The load of a bench lasts as long as it is told to; nothing is asserted of this time.
    tokio::time::sleep_until((start + Duration::from_secs(options.seconds)).into()).await;
    let ticks = procfs::cpu_ticks(pid)? - ticks;
    let reports: Vec<_> = watching.iter().map(|(_, _, subscriber)| subscriber.report()).collect();
    if let Some(mut perf) = perf {
        let status = perf.wait().await.context("waiting for perf")?;
        anyhow::ensure!(status.success(), "perf ended with {status}");
    }
    drop(publishing);
    let delivered: u64 = reports.iter().map(|report| report.received).sum();
    anyhow::ensure!(delivered > 0, "no frame was delivered");
    let per_frame = Duration::from_secs_f64(count(ticks) / TICKS_PER_SECOND / count(delivered));
    Ok(Sample { per_frame, delivered, missing: reports.iter().map(|report| report.missing).sum() })
}

fn record(pid: u32, seconds: u64, file: &Path) -> anyhow::Result<tokio::process::Child> {
    let mut command = tokio::process::Command::new("perf");
    // The software clock is there on virtual machines too.
    command.args(["record", "--quiet", "--event", "cpu-clock", "--freq", "499", "--pid", &pid.to_string(), "--output"]);
    command.arg(file).args(["--", "sleep", &seconds.to_string()]).kill_on_drop(true);
    command.spawn().context("starting perf (Debian: linux-perf)")
}

/// USER_HZ, the unit of utime and stime (proc_pid_stat(5)); 100 on every Linux of today.
const TICKS_PER_SECOND: f64 = 100.0;
