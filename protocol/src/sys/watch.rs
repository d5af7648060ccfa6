//! Watching a channel in the tokio runtime.

use crate::channel::Channel;
use std::io;
use tokio::io::unix::AsyncFd;

/// Registers a channel with the runtime that must run.
///
/// # Errors
///
/// As epoll_ctl(2).
pub(crate) fn watch(channel: Channel) -> io::Result<AsyncFd<Channel>> {
    // SAFETY: a channel owns its descriptor and never replaces it, and from here on the AsyncFd owns the channel, which
    // nothing in this crate moves out of it.
    unsafe { AsyncFd::register(channel) }.map_err(io::Error::from)
}
