//! What the kernel says of a process in one line: proc_pid_stat(5).

use std::fs;

/// The fields that we need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// It has ended, and waits to be reaped.
    pub ended: bool,
    /// Field 4: who has started it; whoever looks after orphans, once that one has ended.
    pub parent: u32,
    /// Field 22: when it was started, in clock ticks since the boot of the machine. A number and this tell a process from
    /// every other one.
    pub started: u64,
}

impl Stat {
    /// Of the process that has this number now.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The second field, the name, may contain anything, and ends with the last parenthesis.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(22 - 5)?.parse().ok()?;
        Some(Self { ended, parent, started })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_hides_no_field() {
        let line =
            |state: &str| format!("7 (a) S 1 (b c)) {state} 42 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 65");
        assert_eq!(Stat::parse(&line("S")), Some(Stat { ended: false, parent: 42, started: 987 }));
        assert_eq!(Stat::parse(&line("Z")).map(|stat| stat.ended), Some(true));
        assert_eq!(Stat::parse("7 (a) S"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn our_own_line_is_understood() {
        let stat = Stat::of(std::process::id()).expect("there");
        assert!(!stat.ended && stat.started > 0);
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
    }
}
