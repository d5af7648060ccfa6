//! Tests that need root.

use anyhow::ensure;
use nix::unistd::geteuid;
use std::io::Write as _;

/// Whether there is root. Where there is none, a line on standard error says that a test is left out, and why: `because`.
///
/// # Errors
/// There is none, and this is CI (`CI=true`), where nothing may be left out.
pub fn is_there(because: &str) -> anyhow::Result<bool> {
    if geteuid().is_root() {
        return Ok(true);
    }
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    ensure!(!in_ci, "{because}: that needs root, and CI must not leave it out");
    writeln!(std::io::stderr(), "LEFT OUT: {because}, and that needs root")?;
    Ok(false)
}
