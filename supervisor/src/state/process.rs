//! Telling a process from a later one with the same number.

use super::document::ProcessEntry;
use crate::stat::Stat;
use crate::sys::pidfd::Pidfd;

impl ProcessEntry {
    /// The process that has this number now. It must still be there, as an unreaped child is.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self { pid, started: started(pid) }
    }

    /// What has become of the process that is meant.
    #[must_use]
    pub fn find(self) -> Whereabouts {
        // Opened first: if the number changes hands in between, the start time is another.
        let process = match Pidfd::open(self.pid) {
            Ok(process) => process,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Whereabouts::Ended,
            Err(error) => return Whereabouts::Unknown(format!("process {} can't be opened: {error}", self.pid)),
        };
        match (self.started, started(self.pid)) {
            (Some(recorded), Some(started)) if recorded == started => Whereabouts::Lives(process),
            (Some(_), Some(_)) => Whereabouts::Ended,
            (None, _) => Whereabouts::Unknown(format!("nobody has noted when process {} was started", self.pid)),
            (Some(_), None) => match process.send_signal(0) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Whereabouts::Ended,
                Ok(()) | Err(_) => Whereabouts::Unknown(format!("/proc does not show process {}", self.pid)),
            },
        }
    }
}

/// What has become of a process that was recorded. To take one that lives for dead would end its connections, so both need
/// proof.
#[derive(Debug)]
pub enum Whereabouts {
    /// It is this one.
    Lives(Pidfd),
    /// Nobody has its number, or one that was started at another time.
    Ended,
    /// Neither is known, for this reason.
    Unknown(String),
}

fn started(pid: u32) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.started)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a process that has ended")]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_again_by_its_number_and_start() {
        let entry = ProcessEntry::of(std::process::id());
        assert!(entry.started.is_some());
        assert!(matches!(entry.find(), Whereabouts::Lives(_)));
        let other = ProcessEntry { started: entry.started.map(|started| started + 1), ..entry };
        assert!(matches!(other.find(), Whereabouts::Ended));
    }

    #[test]
    fn what_can_t_be_told_from_another_is_not_taken_for_dead() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("sleep starts");
        let entry = ProcessEntry { started: None, ..ProcessEntry::of(child.id()) };
        assert!(matches!(entry.find(), Whereabouts::Unknown(why) if why.contains("was started")));
        child.kill().expect("it runs");
        child.wait().expect("ours");
        assert!(matches!(entry.find(), Whereabouts::Ended), "nobody has the number");
    }
}
