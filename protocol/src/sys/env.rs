//! Taking over the descriptor that the environment names.

use crate::child::Error;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes the variable out of the environment and the descriptor that it names into ownership; `None`: not set.
///
/// # Errors
///
/// When other threads run, or it names no open descriptor; then the variable stays.
pub(crate) fn take_fd(variable: &'static str) -> Result<Option<OwnedFd>, Error> {
    let Some(value) = std::env::var_os(variable) else { return Ok(None) };
    let threads = fs::read_dir("/proc/self/task").map_err(Error::Proc)?.count();
    if threads != 1 {
        return Err(Error::Threads { threads });
    }
    let fd: Option<RawFd> = value.to_str().and_then(|value| value.parse().ok()).filter(|fd| *fd >= 0);
    let fd = fd.ok_or(Error::Variable { value })?;
    match fs::symlink_metadata(format!("/proc/self/fd/{fd}")) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::NotOpen { fd }),
        Err(error) => return Err(Error::Proc(error)),
    }
    // SAFETY: this thread is the only one (checked above), so nothing reads the environment meanwhile.
    #[expect(clippy::disallowed_methods, reason = "the one place that may, because no other thread runs")]
    unsafe {
        std::env::remove_var(variable);
    }
    // SAFETY: it is open (checked above), and ours alone: the parent passed it for us, the variable that names it is
    // gone, so that nobody takes it twice, and no other thread could have closed it since.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}
