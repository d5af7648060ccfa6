//! Waiting for descriptors in the event loop.
#![expect(unsafe_code, reason = "tokio can't know that a type keeps its descriptor open")]

use super::pidfd::Pidfd;
use protocol::channel::Channel;
use std::io;
use tokio::io::unix::AsyncFd;

/// Has the runtime watch a channel, which it owns from here on. To be called inside a runtime.
///
/// # Errors
/// As epoll_ctl(2): descriptors or watches are used up.
pub fn watch(channel: Channel) -> io::Result<AsyncFd<Channel>> {
    // SAFETY: a Channel owns its descriptor, which stays the same and open until the Channel, owned by the AsyncFd from
    // here on, is dropped.
    unsafe { AsyncFd::register(channel) }.map_err(io::Error::from)
}

/// Has the runtime watch a process, whose descriptor it owns from here on. To be called inside a runtime.
///
/// # Errors
/// As epoll_ctl(2); EPERM for a descriptor that can't be waited for, which is no pidfd.
pub fn watch_process(process: Pidfd) -> io::Result<AsyncFd<Pidfd>> {
    // SAFETY: a Pidfd owns its descriptor, which stays the same and open until the Pidfd, owned by the AsyncFd from here
    // on, is dropped.
    unsafe { AsyncFd::register(process) }.map_err(io::Error::from)
}
