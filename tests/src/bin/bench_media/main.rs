//! Measures what viewers notice of upgrades: frames that are missing or come twice, and the gaps between frames.
//!
//! Three parts. Clients with default settings through upgrades of our relay, alternated with runs without an upgrade. Clients
//! that ignore GOAWAY and redial when they are closed at the deadline. And, for comparison, both kinds on today's moq-relay
//! (`--peer`), restarted as a service manager does it. Prints a table, writes the figures as JSON, and ends with status 1
//! if a bound does not hold.

mod fleet;
mod ours;
mod stubborn;
mod today;

use clap::Parser;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tests::report::Report;

/// Upgrades as viewers see them.
#[derive(Debug, Parser)]
struct Options {
    /// Publishers, each with a broadcast of its own.
    #[arg(long, default_value_t = 4)]
    publishers: usize,
    /// Viewers, spread over the broadcasts.
    #[arg(long, default_value_t = 16)]
    subscribers: usize,
    /// Frames a second, 1 200 bytes each.
    #[arg(long, default_value_t = 60)]
    rate: u32,
    /// Upgrades in one run.
    #[arg(long, default_value_t = 10)]
    upgrades: u32,
    /// Milliseconds from one upgrade to the next.
    #[arg(long, default_value_t = 8_000)]
    every_ms: u64,
    /// Runs with upgrades, and as many without.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Leave out the clients that ignore GOAWAY.
    #[arg(long)]
    no_stubborn: bool,
    /// Today's moq-relay.
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// Where the figures go.
    #[arg(long, value_name = "PATH", default_value = "target/bench-media.json")]
    json: PathBuf,
}

impl Options {
    fn every(&self) -> Duration {
        Duration::from_millis(self.every_ms)
    }

    /// From one frame to the next.
    fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.rate.max(1)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let mut report = Report::default();
    ours::measure(&options, &mut report).await?;
    if !options.no_stubborn {
        stubborn::measure(&options, &mut report).await?;
    }
    if let Some(peer) = &options.peer {
        today::measure(peer, &options, &mut report).await?;
    }
    write!(std::io::stdout(), "\n{report}")?;
    report.write(&options.json)?;
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what is being measured.
fn say(what: &str) -> std::io::Result<()> {
    writeln!(std::io::stderr(), "measuring: {what}")
}
