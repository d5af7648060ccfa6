//! Our end of the guard: see [`crate::sweep`].

use super::reap::Reaper;
use super::spawn;
use crate::state::{ProcessEntry, Whereabouts};
use crate::sweep;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Our own program, as it runs: also when its file has been replaced.
const PROGRAM: &str = "/proc/self/exe";

/// The process that ends what is left when no supervisor goes on.
#[derive(Debug)]
pub(super) struct Guard {
    channel: UnixStream,
    process: ProcessEntry,
    /// How long it lets generations end by themselves, as it was told last.
    patience: Option<Duration>,
}

impl Guard {
    /// Starts one.
    ///
    /// # Errors
    /// It can't be started.
    pub(super) fn start(reaper: &Reaper) -> io::Result<Self> {
        let (channel, theirs) = UnixStream::pair()?;
        channel.set_nonblocking(true)?;
        let args = ["moq-supervise", "sweep", sweep::WHEN_ABANDONED].map(OsString::from);
        let spawned = spawn::apart(Path::new(PROGRAM), &args, theirs.into())?;
        reaper.apart(spawned.pid);
        Ok(Self { channel, process: ProcessEntry::of(spawned.pid), patience: None })
    }

    /// That of an earlier process; `None` when it is gone or can't be told from others.
    pub(super) fn restored(channel: OwnedFd, process: ProcessEntry, reaper: &Reaper) -> Option<Self> {
        match process.find() {
            Whereabouts::Lives(_) => {}
            Whereabouts::Ended | Whereabouts::Unknown(_) => return None,
        }
        let channel = UnixStream::from(channel);
        channel.set_nonblocking(true).ok()?;
        reaper.apart(process.pid);
        Some(Self { channel, process, patience: None })
    }

    /// How to tell its process from others.
    pub(super) const fn entry(&self) -> Option<ProcessEntry> {
        Some(self.process)
    }

    /// From now on generations may take so long to end by themselves.
    pub(super) fn allow(&mut self, patience: Duration) {
        if self.patience != Some(patience) && self.say(sweep::Word::Patience(patience)) {
            self.patience = Some(patience);
        }
    }

    /// It is not needed any more. Returns once it has ended, or can't have heard.
    pub(super) async fn dismiss(mut self) {
        if !self.say(sweep::Word::End) {
            return;
        }
        let Ok(channel) = tokio::net::UnixStream::from_std(self.channel) else { return };
        // It says nothing: what comes is the end.
        let _ = channel.readable().await;
    }

    fn say(&mut self, word: sweep::Word) -> bool {
        self.channel.write_all(&word.to_bytes()).is_ok()
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
