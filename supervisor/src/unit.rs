//! The systemd unit that we run in, by our control group (proc_pid_cgroup(5)).

use crate::stat::Stat;
use std::fs;

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name, with `.service`.
    pub name: String,
    /// Whether the manager of a user runs it.
    pub of_user: bool,
    /// Its control group, as the kernel shows it.
    group: String,
}

impl Unit {
    /// That of this process; `None` when it is in no service (a terminal, a container without systemd).
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/self/cgroup").ok()?)
    }

    fn of(groups: &str) -> Option<Self> {
        let group = group(groups)?;
        // A service may have groups of its own below.
        let mut parts: Vec<&str> = group.split('/').collect();
        let service = parts.iter().rposition(|part| part.ends_with(".service"))?;
        parts.truncate(service + 1);
        let name = (*parts.last()?).to_owned();
        // The manager of a user is itself a service of the system.
        let of_user = parts.iter().any(|part| part.starts_with("user@")) && !name.starts_with("user@");
        Some(Self { name, of_user, group: parts.join("/") })
    }

    /// The processes in it, those in groups below included, and ours too. Ended ones that wait to be reaped are not.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| self.has(*pid)).collect()
    }

    /// Whether this process is in it and alive.
    #[must_use]
    pub fn has(&self, pid: u32) -> bool {
        let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return false };
        let inside = group(&groups)
            .and_then(|group| group.strip_prefix(&self.group))
            .is_some_and(|below| below.is_empty() || below.starts_with('/'));
        inside && Stat::of(pid).is_some_and(|stat| !stat.ended)
    }
}

/// The path in the hierarchy that systemd keeps its units in: the one named for it, or the unified one. A machine may have both,
/// of which a systemd in a container uses one; in the other its services are nowhere.
fn group(groups: &str) -> Option<&str> {
    let of = |mark: &str| groups.lines().find_map(|line| line.split_once(mark).map(|(_, path)| path));
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let of_a_service = |path: &&str| path.split('/').any(|part| part.ends_with(".service"));
    of(":name=systemd:").filter(of_a_service).or(unified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_is_found_in_every_layout() {
        for (groups, name, of_user) in [
            ("0::/system.slice/relay.service\n", Some("relay.service"), false),
            ("0::/system.slice/relay.service/workers\n", Some("relay.service"), false),
            ("2:cpu:/\n1:name=systemd:/system.slice/relay.service\n0::/\n", Some("relay.service"), false),
            ("2:cpu:/\n1:name=systemd:/\n0::/system.slice/relay.service\n", Some("relay.service"), false),
            ("0::/user.slice/user-7.slice/user@7.service/app.slice/relay.service\n", Some("relay.service"), true),
            ("0::/user.slice/user-7.slice/session-1.scope\n", None, false),
            ("0::/\n", None, false),
            ("", None, false),
        ] {
            let unit = Unit::of(groups);
            assert_eq!(unit.as_ref().map(|unit| unit.name.as_str()), name, "{groups}");
            assert_eq!(unit.is_some_and(|unit| unit.of_user), of_user, "{groups}");
        }
    }

    #[test]
    fn a_process_is_in_its_own_group_and_those_above() {
        let groups = fs::read_to_string("/proc/self/cgroup").expect("mounted");
        let group = group(&groups).expect("there is one").trim_end_matches('/').to_owned();
        let unit = Unit { name: "test.service".to_owned(), of_user: false, group };
        assert!(unit.has(std::process::id()));
        assert!(unit.processes().contains(&std::process::id()));
        assert!(!Unit { group: "/no-such-group".to_owned(), ..unit }.has(std::process::id()));
    }
}
