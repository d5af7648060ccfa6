//! Which child has ended (waitid(2)).
//!
//! Not nix's `waitid`: it turns a death by a realtime signal into EINVAL.
#![expect(unsafe_code, reason = "system calls that neither nix nor std wraps as needed")]

use crate::core::ExitStatus;
use std::io;

/// A child that has ended and waits to be reaped; it still does after this call. `None` when there is none.
///
/// # Errors
/// As waitid(2), without ECHILD: to have no children is `None`.
pub fn next_ended() -> io::Result<Option<u32>> {
    let ended = wait(libc::P_ALL, 0, libc::WNOWAIT)?;
    Ok(ended.map(|(pid, _)| pid))
}

/// Reaps this child, if it has ended. Its number may be another's from then on.
///
/// # Errors
/// As waitid(2), without ECHILD: not to be a child is `None`.
pub fn reap(pid: u32) -> io::Result<Option<ExitStatus>> {
    let ended = wait(libc::P_PID, pid, 0)?;
    Ok(ended.map(|(_, status)| status))
}

fn wait(kind: libc::idtype_t, id: u32, flags: libc::c_int) -> io::Result<Option<(u32, ExitStatus)>> {
    // SAFETY: all-zero is a valid siginfo_t, a plain C struct.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: info is a live siginfo_t that the kernel may write.
    let result = unsafe { libc::waitid(kind, id, &raw mut info, libc::WEXITED | libc::WNOHANG | flags) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(error) };
    }
    // SAFETY: waitid succeeded: the fields of SIGCHLD are filled in, or still zero when nothing has ended (WNOHANG).
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let Some(pid) = u32::try_from(pid).ok().filter(|pid| *pid != 0) else { return Ok(None) };
    let status = u8::try_from(status & 0xff).unwrap_or(u8::MAX);
    let status = if info.si_code == libc::CLD_EXITED { ExitStatus::Code(status) } else { ExitStatus::Signal(status) };
    Ok(Some((pid, status)))
}
