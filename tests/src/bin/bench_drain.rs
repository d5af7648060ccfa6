//! Drains a crowd: 2 000 sessions over 4 s, each of which comes back at once. Are they told evenly, and once; and does
//! the successor see a herd? Prints a table, writes the figures as JSON, and ends with 1 if a bound does not hold.

use clap::Parser;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tests::client::crowd;
use tests::report::Report;

/// Drain a crowd.
#[derive(Debug, Parser)]
struct Options {
    /// Sessions.
    #[arg(long, default_value_t = 2_000)]
    sessions: usize,
    /// One session in so many is over QUIC, the others over TCP.
    #[arg(long, default_value_t = 2)]
    quic_every: usize,
    /// Seconds over which they are told.
    #[arg(long, default_value_t = 4)]
    spread_s: u64,
    /// Where the figures go.
    #[arg(long, value_name = "PATH", default_value = "target/bench-drain.json")]
    json: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let drained = crowd::drain(options.sessions, options.quic_every, Duration::from_secs(options.spread_s)).await?;
    let (distance, p) = drained.evenness();
    let mut report = Report::default();
    report.note("sessions told to go", options.sessions as f64, "");
    report.note("distance of the GOAWAYs from an even spread (Kolmogorov-Smirnov)", distance, "");
    report.bound("probability that they are not even, 1 - p", 1.0 - p, "", 0.99);
    report.bound("sessions told twice", drained.told_again as f64, "", 0.0);
    report.bound("handshakes of the busiest 100 ms at the successor, of the average", drained.busiest(), "times", 2.0);
    write!(std::io::stdout(), "\n{report}")?;
    report.write(&options.json)?;
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
