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
        Self::open_with(pid, 0)
    }

    /// Opens the thread with this number. Readable once that thread has ended; for the one that a process began with, once
    /// the process has.
    ///
    /// # Errors
    /// As [`Self::open`]; EINVAL before Linux 6.9.
    pub fn open_thread(tid: u32) -> io::Result<Self> {
        Self::open_with(tid, libc::PIDFD_THREAD)
    }

    fn open_with(pid: u32, flags: libc::c_uint) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: takes two integers; it has no memory effects. The descriptor is close-on-exec (pidfd_open(2)).
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) };
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

    /// Sends a signal to the process group that this process leads or led, also when the leader is gone: the group can't
    /// be another's.
    ///
    /// # Errors
    /// ESRCH when the group is empty; EINVAL before Linux 6.9.
    pub fn signal_group(&self, signal: i32) -> io::Result<()> {
        let info = std::ptr::null::<libc::siginfo_t>();
        let flags = libc::PIDFD_SIGNAL_PROCESS_GROUP;
        // SAFETY: as in send_signal.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, info, flags) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether it is our own child that has not been reaped yet, so that waitid(2) tells of its end.
    #[must_use]
    pub fn is_child(&self) -> bool {
        // SAFETY: all-zero is a valid siginfo_t, a plain C struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let id = self.0.as_raw_fd().cast_unsigned();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: info is a live siginfo_t that the kernel may write; the descriptor is open for the length of the call.
        unsafe { libc::waitid(libc::P_PIDFD, id, &raw mut info, options) == 0 }
    }

    /// How it ended, if it has been reaped by its parent, whoever that is (PIDFD_GET_INFO, Linux 6.15). `None` when it has
    /// not, or the kernel does not say.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        let exit = u64::from(libc::PIDFD_INFO_EXIT);
        // SAFETY: all-zero is a valid pidfd_info, a plain C struct.
        let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
        info.mask = exit;
        // SAFETY: info is a live pidfd_info, of the size that the request's number says, which the kernel may write; the
        // descriptor is open for the length of the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
        if result < 0 || info.mask & exit == 0 {
            return None;
        }
        Some(ExitStatus::from_wait(info.exit_code.cast_unsigned()))
    }
}

impl From<OwnedFd> for Pidfd {
    /// Takes what is a pidfd by its origin; another descriptor makes every call fail.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
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
mod tests {
    use super::*;
    use std::io::Write as _;
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
    fn the_end_of_a_child_is_told_only_after_it_was_reaped() {
        for (script, status) in [("exit 7", ExitStatus::Code(7)), ("kill -9 $$", ExitStatus::Signal(9))] {
            let mut child = shell(script);
            let pidfd = Pidfd::open(child.id()).expect("not reaped yet");
            assert!(pidfd.is_child());
            assert_eq!(pidfd.exit_status(), None);
            child.wait().expect("ours");
            assert!(!pidfd.is_child());
            // Older kernels never say.
            assert!([Some(status), None].contains(&pidfd.exit_status()));
        }
        assert!(!Pidfd::open(1).expect("there always is one").is_child());
    }

    #[test]
    fn a_group_outlives_its_leader_and_is_still_found() {
        let mut child = shell("(read line <&3) 3<&0 & exit 0");
        let pidfd = Pidfd::open(child.id()).expect("not reaped yet");
        // Not wait(), which would close the pipe that the rest of the group reads.
        let mut pipe = child.stdin.take().expect("piped");
        child.wait().expect("ours");
        match pidfd.signal_group(libc::SIGKILL).map_err(|error| error.raw_os_error()) {
            Ok(()) => assert_eq!(
                std::iter::repeat_with(|| pipe.write(b"x")).find_map(Result::err).map(|e| e.kind()),
                Some(io::ErrorKind::BrokenPipe)
            ),
            Err(error) => assert_eq!(error, Some(libc::EINVAL), "a kernel before 6.9"),
        }
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
