//! Process file descriptors (pidfd_open(2)): a signal sent through one can't hit a process that got the number later.
#![expect(unsafe_code, reason = "system calls that neither nix nor std wraps")]

use crate::core::ExitStatus;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// One process, whoever gets its number after it. Readable (poll(2)) once the process has ended.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens the process with this number. For a child that has not been reaped this is free of races.
    ///
    /// # Errors
    /// ESRCH when there is no such process; ENOSYS before Linux 5.3; ENFILE or EMFILE when descriptors are used up.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: takes two integers; it has no memory effects. The descriptor is close-on-exec (pidfd_open(2)).
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = RawFd::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a signal to this process alone (pidfd_send_signal(2)).
    ///
    /// # Errors
    /// ESRCH when it has ended and been reaped; EPERM when it now runs as another user.
    pub fn send_signal(&self, signal: i32) -> io::Result<()> {
        let info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open for the length of the call, and a null info means "as kill(2)".
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, info, 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Reaps the process if it has ended; `None` while it runs. Never blocks.
    ///
    /// Not nix's `waitid`: it turns a death by a realtime signal into EINVAL, after the child has been reaped.
    ///
    /// # Errors
    /// ECHILD when it is not our child, or was reaped before.
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        // SAFETY: all-zero is a valid siginfo_t, a plain C struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let id = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: info is a live siginfo_t that the kernel may write; the descriptor is open for the length of the call.
        let result = unsafe { libc::waitid(libc::P_PIDFD, id, &raw mut info, libc::WEXITED | libc::WNOHANG) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: waitid succeeded: the fields of SIGCHLD are filled in, or still zero when nothing has ended
        // (waitid(2), WNOHANG).
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        if pid == 0 {
            return Ok(None);
        }
        let status = u8::try_from(status & 0xff).unwrap_or(u8::MAX);
        Ok(Some(match info.si_code {
            libc::CLD_EXITED => ExitStatus::Code(status),
            _ => ExitStatus::Signal(status),
        }))
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Pidfd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Sends a signal to a whole process group (kill(2) with a negative number, whose sign lives here alone).
///
/// The group's number must belong to a leader that has not been reaped, else it may be another's by now.
///
/// # Errors
/// ESRCH when the group is empty; EPERM when it holds only processes of other users; EINVAL for a number that can't
/// name a group of children (0 and 1 would mean our own group and every process).
pub fn kill_group(leader: u32, signal: i32) -> io::Result<()> {
    let Some(leader) = libc::pid_t::try_from(leader).ok().filter(|leader| *leader > 1) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    // SAFETY: takes two integers; it has no memory effects.
    let result = unsafe { libc::kill(-leader, signal) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start processes of their own")]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn shell(script: &str) -> (std::process::Child, Pidfd) {
        let child =
            Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).process_group(0).spawn().expect("sh starts");
        let pidfd = Pidfd::open(child.id()).expect("an unreaped child can be opened");
        (child, pidfd)
    }

    fn end(pidfd: &Pidfd) -> ExitStatus {
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1), "the process ends within 10 s");
        pidfd.try_wait().expect("ours").expect("it has ended")
    }

    #[test]
    fn an_exit_code_is_read_once() {
        let (_child, pidfd) = shell("exit 7");
        assert_eq!(end(&pidfd), ExitStatus::Code(7));
        assert_eq!(pidfd.try_wait().expect_err("reaped").raw_os_error(), Some(libc::ECHILD));
    }

    #[test]
    fn a_running_process_has_no_status_and_dies_of_any_signal_realtime_ones_too() {
        for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGRTMIN() + 3] {
            let (child, pidfd) = shell("read line");
            assert_eq!(pidfd.try_wait().expect("ours"), None);
            pidfd.send_signal(signal).expect("it runs");
            assert_eq!(end(&pidfd), ExitStatus::Signal(u8::try_from(signal).expect("small")));
            drop(child);
        }
    }

    #[test]
    fn a_group_is_killed_with_its_leader() {
        let (child, pidfd) = shell("sleep 100 & wait");
        kill_group(child.id(), libc::SIGKILL).expect("the group exists");
        assert_eq!(end(&pidfd), ExitStatus::Signal(9));
    }

    #[test]
    fn numbers_that_mean_more_than_one_group_are_refused() {
        for leader in [0, 1, u32::MAX] {
            assert_eq!(kill_group(leader, 0).expect_err("refused").raw_os_error(), Some(libc::EINVAL));
        }
    }
}
