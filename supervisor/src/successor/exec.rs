//! The moment in which the program of this process is replaced.

use super::own::Own;
use crate::state::{VARIABLES, variables};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::convert::Infallible;
use std::ffi::{CString, NulError, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

/// Executes the program at its path with the arguments and environment of this process, and hands it these descriptors
/// under their names.
///
/// Signals must be blocked: from here on nobody handles them, until the new program does.
///
/// # Errors
/// Nothing has changed: the descriptors are close-on-exec again.
pub fn execute(
    own: &Own,
    args: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    fds: &[(String, BorrowedFd<'_>)],
) -> io::Result<Infallible> {
    let string = |text: &OsStr| CString::new(text.as_bytes());
    let path = string(own.path().as_os_str())?;
    let args: Vec<CString> = args.into_iter().map(|arg| string(&arg)).collect::<Result<_, NulError>>()?;
    let numbers: Vec<(String, RawFd)> = fds.iter().map(|(name, fd)| (name.clone(), fd.as_raw_fd())).collect();
    let ours = variables(std::process::id(), &numbers);
    let inherited = environment.into_iter().filter(|(name, _)| !VARIABLES.iter().any(|ours| name == ours));
    let variable =
        |(name, value): (OsString, OsString)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat());
    let environment: Vec<CString> = inherited.chain(ours).map(variable).collect::<Result<_, NulError>>()?;
    let kept = fds.iter().try_for_each(|(_, fd)| set_flags(*fd, FdFlag::empty()));
    let Err(error) = kept.and_then(|()| Ok(nix::unistd::execve(&path, &args, &environment)?));
    for (_, fd) in fds {
        // It worked for those that are open, and the others can't leak.
        let _ = set_flags(*fd, FdFlag::FD_CLOEXEC);
    }
    Err(error)
}

fn set_flags(fd: BorrowedFd<'_>, flags: FdFlag) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFD(flags))?;
    Ok(())
}
