//! Everything that can happen, at random moments.

use std::io::Write as _;
use std::time::Duration;
use tests::{storm, systemd};

/// Longer ones: `make soak`.
const LASTS: Duration = Duration::from_secs(60);

/// Guards against what no single test thinks of: blows that meet. To see one again: MOQ_SUPERVISE_STORM_SEED=NUMBER.
#[test]
fn a_storm_of_upgrades_and_kills_under_load_costs_only_what_killed_relays_had() -> anyhow::Result<()> {
    let given = std::env::var("MOQ_SUPERVISE_STORM_SEED").ok();
    let seed = given.map_or_else(|| Ok(rand::random()), |given| given.parse())?;
    writeln!(std::io::stderr(), "seed {seed}")?;
    systemd::test(async |sandbox| {
        let record = storm::rage(sandbox, seed, LASTS).await?;
        writeln!(std::io::stderr(), "{record}")?;
        Ok(())
    })
}
