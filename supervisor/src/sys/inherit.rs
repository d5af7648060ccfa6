//! Descriptors by number, as they come over execve(2).
#![expect(unsafe_code, reason = "a number from the environment becomes an owned descriptor")]

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Owns the descriptor with this number, close-on-exec from here on; `None` when it is not open.
///
/// To be called for a number that nothing in this process owns: one that the environment names, once, before anything
/// else opens descriptors.
#[must_use]
pub fn take(fd: RawFd) -> Option<OwnedFd> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the number is not negative; fcntl says EBADF when it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    // SAFETY: it is open, as fcntl has just shown, and by this function's contract nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
