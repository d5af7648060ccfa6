//! The supervisor's own process, put in order before anything else: whoever started it may have left descriptors open,
//! signals blocked and limits low.

use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::os::fd::RawFd;

/// Lines for the log, which can't be open yet.
///
/// Signals stay blocked until [`super::signals`] handles them.
pub(super) fn tidy(known: &[RawFd]) -> Vec<String> {
    let mut lines = close_unknown(known);
    // Orphans of our children come to us, not to init (PR_SET_CHILD_SUBREAPER(2const)). PID 1 gets them anyway.
    if let Err(error) = set_child_subreaper(true) {
        lines.push(format!("can't become the subreaper of orphans: {error}"));
    }
    // Each member is one descriptor here, and each session one or more in a child, which inherits this.
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        lines.push(format!("the limit of open files can't be raised: {error}"));
    }
    lines
}

/// Closes every other descriptor above standard error: none is known to us, and each would live as long as we do (a lock, a
/// listening socket of the process that started us).
fn close_unknown(known: &[RawFd]) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let open = |entry: std::fs::DirEntry| {
        let fd: RawFd = entry.file_name().to_str()?.parse().ok()?;
        let target = std::fs::read_link(entry.path()).ok()?;
        Some((fd, target.display().to_string()))
    };
    // Collected first: the list holds a descriptor of its own, which is gone by then.
    let fds: Vec<(RawFd, String)> =
        entries.flatten().filter_map(open).filter(|(fd, _)| *fd > 2 && !known.contains(fd)).collect();
    let closed = fds.into_iter().filter(|(fd, _)| nix::unistd::close(*fd).is_ok());
    closed.map(|(fd, target)| format!("closed descriptor {fd} ({target}), which nobody told us about")).collect()
}
