//! The environment of a child: ours, without what was meant for us alone.

use std::ffi::{OsStr, OsString};

/// Drops what names our own descriptors, sockets and timers (sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3)) and
/// everything of ours.
///
/// A child that saw NOTIFY_SOCKET would speak to the service manager in our place; one that saw LISTEN_FDS would take
/// its channel for a socket. INVOCATION_ID and JOURNAL_STREAM stay: standard error is shared, and both describe it.
pub(super) fn clean(ours: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    ours.filter(|(name, _)| !is_ours(name)).collect()
}

fn is_ours(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
        || NAMES.iter().any(|other| name == other.as_bytes())
}

const PREFIXES: [&str; 3] = ["MOQ_SUPERVISE_", "LISTEN_", "WATCHDOG_"];
const NAMES: [&str; 3] = ["NOTIFY_SOCKET", "MAINPID", "FDSTORE"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_managers_variables_stay_here_and_the_operators_pass() {
        let gone = [
            "MOQ_SUPERVISE_FD",
            "NOTIFY_SOCKET",
            "LISTEN_FDS",
            "LISTEN_PID",
            "LISTEN_FDNAMES",
            "WATCHDOG_USEC",
            "WATCHDOG_PID",
            "MAINPID",
            "FDSTORE",
        ];
        let kept = ["PATH", "MOQ_LISTEN", "RUST_LOG", "INVOCATION_ID", "JOURNAL_STREAM", "STATE_DIRECTORY", "LISTENER"];
        let all = gone.iter().chain(&kept).map(|name| (OsString::from(name), OsString::from("x")));
        let names: Vec<OsString> = clean(all).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, kept.map(OsString::from));
    }
}
