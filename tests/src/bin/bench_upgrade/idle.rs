//! What a supervisor costs while nothing happens.

use std::time::{Duration, Instant};
use tests::report::{Report, count};
use tests::supervisor::Setup;
use tests::{procfs, program, relay, wait};

/// Observes a supervisor of one relay for `observed`, after an upgrade.
pub(crate) async fn measure(observed: Duration, report: &mut Report) -> anyhow::Result<()> {
    let supervisor = Setup::new(program::relay()?)?.flags(["--probation", "0s"]).child(relay::OPEN).serve().await?;
    supervisor.upgrade().await?;
    supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    let pid = supervisor.process.pid();
    let (before, begin) = (procfs::wakeups(pid)?, Instant::now());
    let _nothing_comes = wait::within(observed, "an idle time", std::future::pending::<()>()).await;
    let wakeups = count(procfs::wakeups(pid)? - before) / begin.elapsed().as_secs_f64();
    report.bound("wake-ups of the idle supervisor", wakeups, "a second", 2.0);
    report.bound("memory of the supervisor", count(procfs::rss_kib(pid)?) / 1_000.0 * 1.024, "MB", 6.0);
    Ok(())
}
