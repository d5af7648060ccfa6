//! What systemd is about to do with a unit.

use crate::unit::Unit;
use std::process::{Command, Stdio};

/// The type of the unit's job (`stop`, `restart`, `start` and so on); `None`: there is none.
///
/// # Errors
/// Why it is not known.
pub(super) fn of(unit: &Unit) -> Result<Option<String>, String> {
    let mut command = Command::new("systemctl");
    if unit.of_user {
        command.arg("--user");
    }
    command.args(["list-jobs", "--no-legend", "--plain", "--full", "--"]).arg(&unit.name);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("systemctl can't be run: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("systemctl {}: {}", output.status, why.trim()));
    }
    Ok(find(&String::from_utf8_lossy(&output.stdout), &unit.name))
}

/// Columns: number, unit, type, state.
fn find(jobs: &str, unit: &str) -> Option<String> {
    let mut jobs = jobs.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    jobs.find_map(|columns| match columns[..] {
        [_, of, kind, ..] if of == unit => Some(kind.to_owned()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_of_this_very_unit_is_found() {
        let jobs = "167 relay.service.d restart running\n168 relay.service stop waiting\n";
        assert_eq!(find(jobs, "relay.service").as_deref(), Some("stop"));
        assert_eq!(find("No jobs running.\n", "relay.service"), None);
        assert_eq!(find("", "relay.service"), None);
    }
}
