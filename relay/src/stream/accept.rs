//! What a failed `accept` means.

use nix::libc;
use std::io;
use std::time::Duration;

/// The pause after a failure that another `accept` would only repeat: from this, doubling.
const FIRST: Duration = Duration::from_millis(100);
/// The longest such pause: the listener has to come back soon after descriptors or memory have.
const LONGEST: Duration = Duration::from_secs(5);

/// Paces the retries of a listener. Make a new one after each success.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<Duration>);

impl Pace {
    /// How long to wait after this error; `None`: not at all. The errors that Linux passes on from the new connection
    /// (accept(2), "Error handling") concern that one alone, and waiting would punish those behind it.
    pub(super) fn failed(&mut self, error: &io::Error) -> Option<Duration> {
        if error.raw_os_error().is_some_and(|code| OF_ONE_CONNECTION.contains(&code)) {
            return None;
        }
        let pause = self.0.map_or(FIRST, |last| (last * 2).min(LONGEST));
        self.0 = Some(pause);
        Some(pause)
    }
}

const OF_ONE_CONNECTION: [i32; 13] = [
    libc::ECONNABORTED,
    libc::ECONNRESET,
    libc::EHOSTDOWN,
    libc::EHOSTUNREACH,
    libc::EINTR,
    libc::ENETDOWN,
    libc::ENETUNREACH,
    libc::ENONET,
    libc::ENOPROTOOPT,
    libc::ENOTCONN,
    libc::EOPNOTSUPP,
    libc::EPERM,
    libc::EPROTO,
];

#[cfg(test)]
mod tests {
    use super::{Pace, libc};
    use std::io::Error;
    use std::time::Duration;

    /// Without a pause, a process without free descriptors would spin on its listener.
    #[test]
    fn exhaustion_is_paced_with_a_cap() {
        let mut pace = Pace::default();
        let exhausted = Error::from_raw_os_error(libc::EMFILE);
        let pauses: Vec<_> = (0..8).filter_map(|_| pace.failed(&exhausted)).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }

    /// A client that went away before it was accepted must not delay the next.
    #[test]
    fn the_fault_of_one_connection_is_not_paced() {
        let mut pace = Pace::default();
        assert_eq!(pace.failed(&Error::from_raw_os_error(libc::ECONNABORTED)), None);
        assert_eq!(pace.failed(&Error::from_raw_os_error(libc::ENFILE)), Some(Duration::from_millis(100)));
    }
}
