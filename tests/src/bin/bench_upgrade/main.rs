//! Measures upgrades from the outside: what clients lose, how long a switch takes, what the supervisor costs.
//!
//! Four parts, each against stated bounds: upgrades under load; the latency of a switch beside the start of today's
//! relay (`--peer`), alternated in one run; the idle supervisor; three generations whose clients move all the time.
//! Prints a table, writes the figures as JSON, and ends with status 1 if a bound does not hold.

mod idle;
mod latency;
mod storm;
mod upgrades;

use clap::Parser;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tests::report::Report;

/// Upgrades under load, and what they cost.
#[derive(Debug, Parser)]
struct Options {
    /// Upgrades under load.
    #[arg(long, default_value_t = 50)]
    upgrades: u32,
    /// Milliseconds from one upgrade under load to the next.
    #[arg(long, default_value_t = 2_500)]
    every_ms: u64,
    /// Fresh handshakes a second during them.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Sessions that ignore GOAWAY during them.
    #[arg(long, default_value_t = 20)]
    sessions: usize,
    /// Upgrades of an idle relay, each timed.
    #[arg(long, default_value_t = 50)]
    switches: u32,
    /// Today's moq-relay, whose start is timed in alternation with the switches.
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// Seconds over which the idle supervisor is observed.
    #[arg(long, default_value_t = 10)]
    idle_s: u64,
    /// Packets of clients that move all the time; 0: leave this part out.
    #[arg(long, default_value_t = 1_000_000)]
    storm: u64,
    /// Where the figures go.
    #[arg(long, value_name = "PATH", default_value = "target/bench-upgrade.json")]
    json: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let mut report = Report::default();
    if options.upgrades > 0 {
        say("upgrades under load")?;
        let every = Duration::from_millis(options.every_ms);
        upgrades::measure(options.upgrades, every, options.rate, options.sessions, &mut report).await?;
    }
    if options.switches > 0 {
        say("switches of an idle relay")?;
        latency::measure(options.switches, options.peer.as_deref(), &mut report).await?;
    }
    if options.idle_s > 0 {
        say("an idle supervisor")?;
        idle::measure(Duration::from_secs(options.idle_s), &mut report).await?;
    }
    if options.storm > 0 {
        say("three generations whose clients move")?;
        storm::measure(options.storm, &mut report).await?;
    }
    write!(std::io::stdout(), "\n{report}")?;
    report.write(&options.json)?;
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what is being measured.
fn say(what: &str) -> std::io::Result<()> {
    writeln!(std::io::stderr(), "measuring: {what}")
}
