//! The memory that this process can use: the machine's, or the least that its control groups leave it (proc(5),
//! cgroups(7); the version 2 hierarchy, where `memory.max` is a limit and `memory.current` counts the page cache too).

use std::io;
use std::path::{Path, PathBuf};

/// In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// All of it.
    pub(super) total: u64,
    /// What can be had without swapping.
    pub(super) available: u64,
}

impl Memory {
    /// As it is now.
    pub(super) fn read() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/meminfo")?;
        let machine =
            Self::parse(&text).ok_or_else(|| io::Error::other("/proc/meminfo lacks MemTotal or MemAvailable"))?;
        let group = std::fs::read_to_string("/proc/self/cgroup").ok();
        Ok(match group.as_deref().and_then(group_path) {
            Some(path) => machine.limited_by(Path::new("/sys/fs/cgroup"), path),
            None => machine,
        })
    }

    fn parse(meminfo: &str) -> Option<Self> {
        let field = |name: &str| -> Option<u64> {
            let rest = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
        };
        Some(Self { total: field("MemTotal")?, available: field("MemAvailable")? })
    }

    /// Narrowed by the group at `path` below `root`, and by each group that it is in.
    fn limited_by(self, root: &Path, path: &str) -> Self {
        let mut memory = self;
        let leaf = root.join(path.trim_start_matches('/'));
        for group in leaf.ancestors().take_while(|group| group.starts_with(root)) {
            let number =
                |name: &str| -> Option<u64> { std::fs::read_to_string(group.join(name)).ok()?.trim().parse().ok() };
            // "max", the absence of a limit, is no number.
            let Some(limit) = number("memory.max") else { continue };
            let used = number("memory.current").unwrap_or(0).saturating_sub(inactive_file(&group.join("memory.stat")));
            memory.total = memory.total.min(limit);
            memory.available = memory.available.min(limit.saturating_sub(used));
        }
        memory
    }
}

/// Page cache that the kernel drops first: counted as used, free in effect.
fn inactive_file(stat: &PathBuf) -> u64 {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok()).unwrap_or(0)
}

/// The version 2 entry of /proc/self/cgroup.
fn group_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MACHINE: Memory = Memory { total: 1_000, available: 800 };

    #[test]
    fn meminfo_is_in_kibibytes() {
        let text = "MemTotal:        2048 kB\nMemFree:  1 kB\nMemAvailable:    1024 kB\n";
        assert_eq!(Memory::parse(text), Some(Memory { total: 2_097_152, available: 1_048_576 }));
        assert_eq!(Memory::parse("MemTotal: 2048 kB\n"), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let leaf = root.path().join("a/b");
        fs::create_dir_all(&leaf).unwrap();
        assert_eq!(MACHINE.limited_by(root.path(), "/a/b"), MACHINE);

        fs::write(leaf.join("memory.max"), "max\n").unwrap();
        assert_eq!(MACHINE.limited_by(root.path(), "/a/b"), MACHINE);

        fs::write(root.path().join("a/memory.max"), "500\n").unwrap();
        fs::write(root.path().join("a/memory.current"), "400\n").unwrap();
        fs::write(root.path().join("a/memory.stat"), "anon 1\ninactive_file 50\n").unwrap();
        assert_eq!(MACHINE.limited_by(root.path(), "/a/b"), Memory { total: 500, available: 150 });
    }

    #[test]
    fn the_version_2_group_is_found_among_others() {
        assert_eq!(group_path("12:cpu:/x\n0::/user.slice\n"), Some("/user.slice"));
        assert_eq!(group_path("12:cpu:/x\n"), None);
    }

    #[test]
    fn this_machine_can_be_read() {
        let memory = Memory::read().unwrap();
        assert!(memory.total >= memory.available && memory.available > 0);
    }
}
