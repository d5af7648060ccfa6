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

    /// The process that is meant, if it still lives and can be told from others.
    #[must_use]
    pub fn open(self) -> Option<Pidfd> {
        let recorded = self.started?;
        // Opened first: if the number changes hands in between, the start time is another.
        let process = Pidfd::open(self.pid).ok()?;
        (started(self.pid) == Some(recorded)).then_some(process)
    }
}

fn started(pid: u32) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_again_by_its_number_and_start() {
        let entry = ProcessEntry::of(std::process::id());
        assert!(entry.started.is_some());
        assert!(entry.open().is_some());
        let other = ProcessEntry { started: entry.started.map(|started| started + 1), ..entry };
        assert!(other.open().is_none());
        assert!(ProcessEntry { started: None, ..entry }.open().is_none());
    }
}
