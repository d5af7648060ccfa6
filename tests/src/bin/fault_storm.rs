//! A long storm (`tests::storm`): upgrades and kills at random moments under a real systemd, with clients that notice
//! everything. Prints its seed first and what came of it last; ends with status 1 if anything was lost that must not be.
//! Needs root.

use clap::Parser;
use std::io::Write as _;
use std::time::Duration;
use tests::{storm, systemd};

/// Everything that can happen to a service, at random moments.
#[derive(Debug, Parser)]
struct Options {
    /// The storm to see again.
    #[arg(long, default_value_t = rand::random())]
    seed: u64,
    /// How long it rages, in seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    writeln!(std::io::stdout(), "seed {}", options.seed)?;
    systemd::inside(async |sandbox| {
        let record = storm::rage(sandbox, options.seed, Duration::from_secs(options.seconds)).await?;
        writeln!(std::io::stdout(), "{record}")?;
        Ok(())
    })
}
