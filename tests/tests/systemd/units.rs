//! The unit files themselves: what systemd's own checkers say of them.

use anyhow::{Context as _, ensure};
use tests::systemd::{self, Sandbox, Setup};

/// The greatest exposure that we ship ("OK" in systemd's words is up to 4).
const EXPOSURE: f64 = 2.0;

/// systemd knows every line of the unit, and finds what it names.
pub(crate) async fn is_clean(sandbox: &Sandbox, unit: &str) -> anyhow::Result<()> {
    let verify = sandbox.run(&["systemd-analyze", "verify", unit]).await?;
    let said = format!("{}{}", verify.stdout, verify.stderr);
    ensure!(verify.status.success() && said.trim().is_empty(), "systemd-analyze verify {unit}: {said}");
    Ok(())
}

/// How exposed systemd finds it: 0 to 10.
pub(crate) async fn exposure(sandbox: &Sandbox, unit: &str) -> anyhow::Result<f64> {
    let text = sandbox.must(&["systemd-analyze", "security", "--no-pager", unit]).await?;
    let overall = text.lines().find(|line| line.contains("Overall exposure level")).context("an overall level")?;
    let level = overall.split_whitespace().find_map(|word| word.parse::<f64>().ok());
    level.with_context(|| format!("a number in {overall:?}"))
}

#[test]
fn the_unit_is_clean_and_closed() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.install().await?;
        is_clean(sandbox, &service.name).await?;
        let exposure = exposure(sandbox, &service.name).await?;
        ensure!(exposure <= EXPOSURE, "exposed by {exposure}");
        Ok(())
    })
}
