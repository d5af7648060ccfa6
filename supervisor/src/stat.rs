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

    fn parse(line: &str) -> Option<Self> {
        let (ended, mut fields) = from_fourth(line)?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(22 - 5)?.parse().ok()?;
        Some(Self { ended, parent, started })
    }
}

/// Whether it has ended (field 3), and the fields from the fourth on. The second, the name, may contain anything, and ends with
/// the last parenthesis.
fn from_fourth(line: &str) -> Option<(bool, impl Iterator<Item = &str>)> {
    let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    Some((ended, fields))
}

/// One thread, as it is or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub tid: u32,
    /// It will not run again: it has ended, or the kernel is at it (PF_EXITING of field 9).
    pub is_over: bool,
    /// SIGKILL waits for it alone, as it does for each thread of a process that ends (kernel/signal.c,
    /// `zap_other_threads`): it runs a few instructions more at the most.
    pub is_killed: bool,
    /// Field 52, in the form of wait(2), once it is over: 0 also for who may not know it.
    pub exit_code: u32,
}

/// Set from the beginning of the end of a thread (include/linux/sched.h).
const PF_EXITING: u32 = 0x4;

impl Task {
    /// All threads of the process that has this number now.
    #[must_use]
    pub fn all(pid: u32) -> Vec<Self> {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
        let tids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
        tids.filter_map(|tid| Self::of(pid, tid)).collect()
    }

    fn of(pid: u32, tid: u32) -> Option<Self> {
        let task = Self::parse(tid, &fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?)?;
        if task.is_over {
            return Some(task);
        }
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        Some(Self { is_killed: is_killed(&status), ..task })
    }

    fn parse(tid: u32, line: &str) -> Option<Self> {
        let (ended, mut fields) = from_fourth(line)?;
        let flags: u32 = fields.nth(9 - 4)?.parse().ok()?;
        let exit_code = fields.nth(52 - 10)?.parse().ok()?;
        Some(Self { tid, is_over: ended || flags & PF_EXITING != 0, is_killed: false, exit_code })
    }
}

/// Whether SIGKILL is among the thread's own pending signals (proc_pid_status(5)).
fn is_killed(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.is_some_and(|mask| mask & 1 << (libc::SIGKILL - 1) != 0)
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
    fn a_thread_that_ends_is_told_from_one_that_runs() {
        let line = |state: &str, flags: u32, code: u32| {
            let rest = "0 ".repeat(51 - 9);
            format!("7 (a) S 1 (b c)) {state} 42 7 7 0 -1 {flags} {rest}{code}")
        };
        let runs = Task { tid: 8, is_over: false, is_killed: false, exit_code: 0 };
        assert_eq!(Task::parse(8, &line("S", 0x40_0040, 0)), Some(runs));
        assert_eq!(Task::parse(8, &line("R", 0x40_0044, 9)), Some(Task { is_over: true, exit_code: 9, ..runs }));
        assert_eq!(Task::parse(8, &line("Z", 0x40_0040, 768)), Some(Task { is_over: true, exit_code: 768, ..runs }));
        assert_eq!(Task::parse(8, "7 (a) S 1 2"), None);
        assert!(is_killed("Name:\ta\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(!is_killed("SigPnd:\t0000000000004000\nShdPnd:\t0000000000000100\n"));
        assert!(!is_killed("SigPnd:\tgarbage\n"));
    }

    #[test]
    fn our_own_threads_run() {
        let tasks = Task::all(std::process::id());
        assert!(tasks.len() >= 2, "{tasks:?}");
        assert!(tasks.iter().all(|task| !task.is_over && !task.is_killed), "{tasks:?}");
    }

    #[test]
    fn our_own_line_is_understood() {
        let stat = Stat::of(std::process::id()).expect("there");
        assert!(!stat.ended && stat.started > 0);
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
    }
}
