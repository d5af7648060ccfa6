//! Our relay: runs with upgrades and without, in turn.

use crate::fleet::{Fleet, Noticed};
use crate::{Options, say};
use std::time::Duration;
use tests::report::{Report, count, milliseconds, quantile};
use tests::supervisor::Setup;
use tests::{program, relay};

/// `--drain-timeout`: how long two generations overlap at most.
pub(crate) const OVERLAP: &str = "5s";

/// Runs it, and notes the figures.
pub(crate) async fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for run in 1..=options.runs {
        say(&format!("run {run} of {}: without an upgrade", options.runs))?;
        without.push(one(options, 0).await?);
        say(&format!("run {run} of {}: {} upgrades", options.runs, options.upgrades))?;
        let noticed = one(options, options.upgrades).await?;
        say(&format!("{noticed:?}"))?;
        with.push(noticed);
    }
    let sum = |runs: &[Noticed], what: fn(&Noticed) -> u64| count(runs.iter().map(what).sum());
    report.note("frames delivered in the runs with upgrades", sum(&with, |run| run.received), "");
    report.bound("frames missing", sum(&with, |run| run.missing), "", 0.0);
    report.bound("frames that came twice", sum(&with, |run| run.duplicates), "", 0.0);
    report.bound("subscriptions interrupted", sum(&with, |run| run.interruptions), "", 0.0);
    report.bound("clients that gave up", sum(&with, |run| run.gone), "", 0.0);
    report.bound("frames missing without an upgrade", sum(&without, |run| run.missing + run.duplicates), "", 0.0);
    let interval = milliseconds(options.interval());
    for (name, gap, intervals) in [
        ("gap between frames, p99.9", (|run| run.gap_p999) as fn(&Noticed) -> Duration, 1.0),
        ("gap between frames, longest", |run| run.gap_max, 3.0),
    ] {
        let median = |runs: &[Noticed]| milliseconds(quantile(&mut runs.iter().map(gap).collect::<Vec<_>>(), 0.5));
        let quiet = median(&without);
        report.note(&format!("{name}, median of the runs without"), quiet, "ms");
        report.bound(&format!("{name}, median of the runs with"), median(&with), "ms", quiet + intervals * interval);
    }
    Ok(())
}

async fn one(options: &Options, upgrades: u32) -> anyhow::Result<Noticed> {
    let flags = ["--probation", "500ms", "--drain-timeout", OVERLAP, "--max-generations", "4"];
    let supervisor = Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).serve().await?;
    let fleet = Fleet::join(supervisor.address().await?, options).await?;
    let mut pace = tokio::time::interval(options.every());
    pace.tick().await;
    for upgrade in 0..options.upgrades {
        if upgrade < upgrades {
            supervisor.upgrade().await?;
        }
        pace.tick().await;
    }
    Ok(fleet.noticed().await)
}
