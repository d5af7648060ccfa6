//! The unit files themselves: what systemd's own checkers say of them.

use anyhow::{Context as _, ensure};
use tests::systemd::{self, Sandbox, Setup, shipped};

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

/// The settings that a file marks as those that must stay.
fn must_stay(file: &str) -> anyhow::Result<Vec<String>> {
    let text = shipped(file)?;
    let mut lines = text.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("# [outage]") {
            let setting = lines.by_ref().find(|line| !line.starts_with('#'));
            found.push(setting.with_context(|| format!("{file}: nothing follows {line:?}"))?.to_owned());
        }
    }
    Ok(found)
}

/// Guards who uses the drop-in: what is an outage without a line of the unit is one without that line there.
#[test]
fn the_drop_in_has_every_line_that_must_stay() -> anyhow::Result<()> {
    let unit = must_stay("moq-supervise.service")?;
    ensure!(unit.len() == 8 && unit.iter().all(|line| line.contains('=')), "{unit:?}");
    assert_eq!(must_stay("moq-relay.service.d/supervise.conf")?, unit);
    Ok(())
}
