//! Signals that come before there is anybody to handle them.

use nix::sys::signal::{SigSet, SigmaskHow};

/// From here on every signal waits, also for threads that are started from now on: by default one of those that mean
/// something to a supervisor would end it.
#[derive(Debug)]
pub(super) struct Held {
    /// The mask as we were started with it; `None`: it could not be changed.
    before: Option<SigSet>,
}

impl Held {
    pub(super) fn all() -> Self {
        Self { before: SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok() }
    }

    /// Everything is as it was, for commands that a signal just ends.
    pub(super) fn release(self) {
        // The same call has worked before.
        let _ = self.before.map(|before| before.thread_set_mask());
    }
}
