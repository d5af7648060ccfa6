//! Signals, by what they mean.

use crate::sys::pidfd::Pidfd;
use futures_util::{FutureExt as _, StreamExt as _};
use libc::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use nix::sys::signal::SigSet;
use std::{fmt, io};

/// One that came, or several of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGTERM, SIGINT.
    Stop,
    /// SIGUSR2.
    Upgrade,
    /// SIGHUP.
    Reload,
    /// SIGRTMIN+1.
    Leave,
    /// SIGUSR1: for the children.
    PassOn(i32),
    /// SIGCHLD.
    ChildEnded,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "stop",
            Self::Upgrade => "upgrade",
            Self::Reload => "reload",
            Self::Leave => "leave",
            Self::PassOn(_) => "passed on",
            Self::ChildEnded => "a child ended",
        })
    }
}

/// While it lives, signals wait.
#[derive(Debug)]
pub(super) struct Blocked(());

impl Drop for Blocked {
    fn drop(&mut self) {
        // The same call has worked before.
        let _ = SigSet::empty().thread_set_mask();
    }
}

/// Has every signal wait in this thread, for good. No thread but the loop's may take one: its handler would note it in a pipe
/// that an execve closes, while the loop believes that all are held back.
pub(super) fn none_for_this_thread() {
    // It fails for arguments that make no sense alone.
    let _ = SigSet::all().thread_set_mask();
}

/// Those that are handled. SIGPIPE is ignored by std, and reset for children.
pub(super) struct Signals(signal_hook_tokio::Signals);

impl Signals {
    /// Takes them over from here on. They have waited since the very beginning of the program, so that those which came
    /// meanwhile come now; and threads that were started before have all of them blocked.
    ///
    /// # Errors
    /// As sigaction(2) and socketpair(2).
    pub(super) fn new() -> io::Result<Self> {
        let all = [SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD, leave()];
        let signals = signal_hook_tokio::Signals::new(all).map(Self)?;
        // Whatever was inherited: one that blocks SIGTERM would make us deaf.
        SigSet::empty().thread_set_mask()?;
        Ok(signals)
    }

    /// From here on signals wait, for this process's next program or until the result is dropped. Those that came and were
    /// not handled yet wait again, with them.
    pub(super) async fn block(&mut self) -> io::Result<Blocked> {
        SigSet::all().thread_set_mask()?;
        let blocked = Blocked(());
        let ourselves = Pidfd::open(std::process::id())?;
        // What the handlers have noted is read off a pipe, which the runtime looks at when nobody is running.
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        while let Some(Some(number)) = self.0.next().now_or_never() {
            ourselves.send_signal(number)?;
        }
        Ok(blocked)
    }

    /// The next one. Safe to cancel.
    pub(super) async fn next(&mut self) -> Signal {
        loop {
            match self.0.next().await {
                Some(SIGTERM | SIGINT) => return Signal::Stop,
                Some(SIGUSR2) => return Signal::Upgrade,
                Some(SIGHUP) => return Signal::Reload,
                Some(SIGUSR1) => return Signal::PassOn(SIGUSR1),
                Some(SIGCHLD) => return Signal::ChildEnded,
                Some(number) if number == leave() => return Signal::Leave,
                Some(_) => {}
                // Ends when its handle is closed, which nobody does.
                None => std::future::pending().await,
            }
        }
    }
}

fn leave() -> i32 {
    libc::SIGRTMIN() + 1
}
