//! Process file descriptors (pidfd_open(2)): a signal sent through one can't hit a process that got the number later.
#![expect(unsafe_code, reason = "system calls that neither nix nor std wraps")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// One process, whoever gets its number after it.
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
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    /// In a process group of its own.
    #[expect(clippy::disallowed_methods, reason = "tests start processes of their own")]
    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).stdin(Stdio::piped()).process_group(0).spawn().expect("sh starts")
    }

    #[test]
    fn a_signal_ends_the_process_realtime_ones_too() {
        for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGRTMIN() + 3] {
            let mut child = shell("read line");
            Pidfd::open(child.id()).expect("it runs").send_signal(signal).expect("sent");
            assert_eq!(child.wait().expect("ours").signal(), Some(signal));
        }
    }

    #[test]
    fn a_process_that_was_reaped_gets_no_signal() {
        let mut child = shell("exit 0");
        let pidfd = Pidfd::open(child.id()).expect("not reaped yet");
        child.wait().expect("ours");
        assert_eq!(pidfd.send_signal(0).expect_err("reaped").raw_os_error(), Some(libc::ESRCH));
        assert!(Pidfd::open(u32::MAX).is_err());
    }

    #[test]
    fn a_group_is_killed_with_its_leader() {
        let mut child = shell("sleep 100 & wait");
        kill_group(child.id(), libc::SIGKILL).expect("the group exists");
        assert_eq!(child.wait().expect("ours").signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn numbers_that_mean_more_than_one_group_are_refused() {
        for leader in [0, 1, u32::MAX] {
            assert_eq!(kill_group(leader, 0).expect_err("refused").raw_os_error(), Some(libc::EINVAL));
        }
    }
}
