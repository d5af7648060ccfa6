//! What the fault scenarios share: a service under load that must not notice, a path that holds datagrams back, and a
//! terminal.

pub mod health;
pub mod path;
pub mod terminal;
pub mod under_load;

pub use health::HealthServer;
pub use path::HeldPath;
pub use terminal::Terminal;
pub use under_load::UnderLoad;

use crate::Replaceable;
use crate::process::Output;
use crate::supervisor::{Setup, Supervisor};
use anyhow::{Context as _, ensure};
use serde_json::Value;

/// A supervisor whose program, which the test may replace, is an echo server at first and serves.
///
/// # Errors
/// It does not come to serve.
pub async fn serving(flags: &[&str]) -> anyhow::Result<(Supervisor, Replaceable)> {
    let setup = Setup::new("program")?.flags(flags);
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let supervisor = setup.exec(program.path()).serve().await?;
    Ok((supervisor, program))
}

/// The whole of `status --json` (docs/control.md).
///
/// # Errors
/// The supervisor does not answer.
pub async fn status(supervisor: &Supervisor) -> anyhow::Result<Value> {
    let output = supervisor.command("status", &["--json"]).await?;
    ensure!(output.status.success(), "status ended with {}: {}", output.status, output.stderr);
    serde_json::from_str(&output.stdout).with_context(|| format!("status said {}", output.stdout))
}

/// What a live generation counts under this name in `status --json`.
///
/// # Errors
/// The supervisor does not answer, or has no such generation or counter.
pub async fn counter(supervisor: &Supervisor, generation: u32, name: &str) -> anyhow::Result<u64> {
    let status = status(supervisor).await?;
    let all = status["generations"].as_array().context("generations")?;
    let found = all.iter().find(|one| one["generation"] == generation);
    let found = found.with_context(|| format!("generation {generation} is not in {status}"))?;
    found[name].as_u64().with_context(|| format!("{name} is no number in {found}"))
}

/// Asks for an upgrade that must end with `code` and one line on standard error that names all of `says`.
///
/// # Errors
/// It ends otherwise.
pub async fn upgrade_ends(supervisor: &Supervisor, code: u8, says: &[&str]) -> anyhow::Result<Output> {
    let output = supervisor.command("upgrade", &[]).await?;
    ensure!(
        output.status.code() == Some(i32::from(code)),
        "upgrade ended with {}: {}{}",
        output.status,
        output.stderr,
        supervisor.process.tail()
    );
    ensure!(output.stderr.trim().lines().count() == 1, "not one line: {:?}", output.stderr);
    for part in says {
        ensure!(output.stderr.contains(part), "{part:?} is not in {:?}", output.stderr);
    }
    Ok(output)
}
