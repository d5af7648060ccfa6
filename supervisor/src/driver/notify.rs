//! What the service manager is told (sd_notify(3)). The supervisor is the only one that speaks to it.
//!
//! By hand, because the sd-notify crate (0.5) can't send to an abstract socket, which is what systemd gives to a
//! service manager nested in a container.
//!
//! Everything goes through one queue, in order: what is stored before READY=1 is said is stored before the service counts
//! as started. A manager that does not read (its socket holds some hundred messages) stops nothing here.

use crate::core::Time;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// At most one STATUS in this time if only numbers in it have changed: the manager stores each.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);
/// A full socket is tried again after this.
const AGAIN: Duration = Duration::from_millis(20);
/// More than the store of the largest service takes (4 096 sockets, stored and removed).
const MAX_QUEUED: usize = 16_384;

/// The way to the service manager, if there is one.
#[derive(Debug)]
pub(super) struct Notify {
    manager: Option<(UnixDatagram, UnixAddr)>,
    queue: VecDeque<Message>,
    said: String,
    quiet_until: Time,
}

#[derive(Debug)]
struct Message {
    text: String,
    /// A duplicate, since ours may be closed meanwhile.
    fd: Option<OwnedFd>,
}

impl Notify {
    /// To the manager named by NOTIFY_SOCKET: a path, or an abstract name after `@`.
    ///
    /// # Errors
    /// When the variable names something that can't be sent to.
    pub(super) fn new(address: Option<&OsStr>) -> io::Result<Self> {
        let manager = match address.filter(|address| !address.is_empty()) {
            None => None,
            Some(address) => {
                let address = match address.as_bytes().strip_prefix(b"@") {
                    Some(name) => UnixAddr::new_abstract(name)?,
                    None => UnixAddr::new(address)?,
                };
                let socket = UnixDatagram::unbound()?;
                // A manager that does not read must not stop the loop.
                socket.set_nonblocking(true)?;
                Some((socket, address))
            }
        };
        Ok(Self { manager, queue: VecDeque::new(), said: String::new(), quiet_until: Time::default() })
    }

    /// Whether there is anybody to tell.
    pub(super) fn wanted(&self) -> bool {
        self.manager.is_some()
    }

    /// Sends assignments, one per line.
    pub(super) fn say(&mut self, lines: &str) {
        self.push(lines.to_owned(), None);
    }

    /// Has the manager keep a descriptor. FDPOLL=0: else it would drop a channel that is closed, and a pidfd whose process
    /// has ended, before anybody could learn of that.
    pub(super) fn store(&mut self, name: &str, fd: BorrowedFd<'_>) {
        self.push(format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}"), Some(fd));
    }

    /// Has the manager keep the writing end of a pipe; the result is the other end. FDPOLL=1: it is let go by itself when
    /// ours is closed.
    ///
    /// # Errors
    /// As pipe2(2); ENOTCONN when there is no manager.
    pub(super) fn probe(&mut self, name: &str) -> io::Result<OwnedFd> {
        let (ours, theirs) = self.pipe()?;
        self.push(format!("FDSTORE=1\nFDPOLL=1\nFDNAME={name}"), Some(theirs.as_fd()));
        Ok(ours)
    }

    /// Has the manager close a descriptor that it keeps.
    pub(super) fn remove(&mut self, name: &str) {
        self.push(format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
    }

    /// The result becomes readable, at its end, once the manager has handled everything that was said before.
    ///
    /// # Errors
    /// As pipe2(2); ENOTCONN when there is no manager.
    pub(super) fn barrier(&mut self) -> io::Result<OwnedFd> {
        let (ours, theirs) = self.pipe()?;
        let text = "BARRIER=1".to_owned();
        self.queue.push_back(Message { text, fd: Some(theirs) });
        self.flush();
        Ok(ours)
    }

    fn pipe(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        if self.manager.is_none() {
            return Err(Errno::ENOTCONN.into());
        }
        Ok(nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)?)
    }

    /// Sends what waits, as far as the manager reads. Says after how long to try again.
    pub(super) fn flush(&mut self) -> Option<Duration> {
        let (socket, address) = self.manager.as_ref()?;
        while let Some(Message { text, fd }) = self.queue.front() {
            let fds: Vec<_> = fd.iter().map(AsRawFd::as_raw_fd).collect();
            let rights = [ControlMessage::ScmRights(&fds)];
            let rights = if fds.is_empty() { &[] } else { &rights[..] };
            let parts = [IoSlice::new(text.as_bytes())];
            match sendmsg(socket.as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, Some(address)) {
                // EAGAIN: its queue is full; ETOOMANYREFS: too many descriptors are on their way; ENOBUFS: memory.
                Err(Errno::EAGAIN | Errno::ETOOMANYREFS | Errno::ENOBUFS | Errno::EINTR) => return Some(AGAIN),
                Ok(_) => {}
                Err(errno) => tracing::warn!("the service manager can't be told {text:?}: {errno}"),
            }
            self.queue.pop_front();
        }
        None
    }

    /// Sends the status text if it has changed and the last one is old enough; otherwise says when it may be. `quiet`: a
    /// text that differs in numbers alone can wait.
    pub(super) fn status(&mut self, now: Time, text: &str, quiet: bool) -> Option<Time> {
        if text == self.said {
            return None;
        }
        if quiet && now < self.quiet_until {
            return Some(self.quiet_until);
        }
        self.say(&format!("STATUS={text}"));
        text.clone_into(&mut self.said);
        self.quiet_until = now.after(STATUS_INTERVAL);
        None
    }

    fn push(&mut self, text: String, fd: Option<BorrowedFd<'_>>) {
        if self.manager.is_none() {
            return;
        }
        if self.queue.len() >= MAX_QUEUED {
            tracing::warn!("the service manager does not read: {text:?} is lost");
            return;
        }
        let fd = match fd.map(|fd| fd.try_clone_to_owned()).transpose() {
            Ok(fd) => fd,
            Err(error) => return tracing::warn!("the service manager can't be told {text:?}: {error}"),
        };
        self.queue.push_back(Message { text, fd });
        self.flush();
    }
}
