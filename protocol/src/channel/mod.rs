//! The channel between a supervisor and one child: a `SOCK_SEQPACKET` unix socket whose every record is one JSON object,
//! with file descriptors beside it.
//!
//! Nothing here blocks: a channel that is not ready says `WouldBlock`, and its owner waits on the descriptor.

mod error;
mod memfd;

pub use error::{InvalidChannel, MemfdError, RecvError, SendError};
pub use memfd::{read_memfd, sealed_memfd};

use crate::message::Message;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The longest record in bytes. A quarter of what a unix socket takes by default (net.core.wmem_default, 212 992), so
/// that a message fits whatever the kernel adds.
pub const MAX_MESSAGE: usize = 65_536;
/// How many descriptors one record can carry: SCM_MAX_FD of unix(7).
pub const MAX_FDS: usize = 253;

/// One end of a channel: close-on-exec, non-blocking.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// One record as it came.
#[derive(Debug)]
pub struct Record {
    /// The JSON text.
    pub bytes: Vec<u8>,
    /// The descriptors beside it, close-on-exec, in the order of the sender.
    pub fds: Vec<OwnedFd>,
}

/// One record that could be read as an object with a `type`.
#[derive(Debug)]
pub enum Received<T> {
    /// A message that this side knows.
    Message {
        /// What it says.
        message: T,
        /// The descriptors beside it.
        fds: Vec<OwnedFd>,
    },
    /// A message that this side does not know; to be answered with `unsupported`. Its descriptors are closed.
    Unknown {
        /// Its `type`.
        message: String,
    },
}

impl Channel {
    /// Two connected ends.
    ///
    /// # Errors
    ///
    /// As socketpair(2).
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(one), Self(other)))
    }

    /// Takes a descriptor that came from outside, and makes it close-on-exec and non-blocking.
    ///
    /// # Errors
    ///
    /// [`InvalidChannel`] when it is not a unix SOCK_SEQPACKET socket.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, InvalidChannel> {
        match (sockopt::socket_domain(&fd), sockopt::socket_type(&fd)) {
            (Ok(AddressFamily::UNIX), Ok(SocketType::SEQPACKET)) => {}
            (Ok(_), Ok(_)) | (Err(_), _) | (_, Err(_)) => return Err(InvalidChannel::Kind(fd.as_raw_fd())),
        }
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).map_err(|errno| InvalidChannel::Io(errno.into()))?;
        rustix::io::ioctl_fionbio(&fd, true).map_err(|errno| InvalidChannel::Io(errno.into()))?;
        Ok(Self(fd))
    }

    /// Sends one message with descriptors beside it.
    ///
    /// # Errors
    ///
    /// [`SendError`]; whatever it is, nothing was sent.
    pub fn send<T: Message>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        self.send_raw(&serde_json::to_vec(message).map_err(SendError::Unwritable)?, fds)
    }

    /// Sends one record.
    ///
    /// # Errors
    ///
    /// [`SendError`]; whatever it is, nothing was sent.
    pub fn send_raw(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(SendError::TooLong { bytes: bytes.len() });
        }
        if fds.len() > MAX_FDS {
            return Err(SendError::TooManyFds { fds: fds.len() });
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(SendError::TooManyFds { fds: fds.len() });
        }
        loop {
            // NOSIGNAL: a child of a dead supervisor must see an error, not die of SIGPIPE.
            match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Takes the next record; `None`: the other end is closed. (An empty record, which no sender of this protocol
    /// sends, reads as the same: recvmsg(2) can't tell them apart.)
    ///
    /// # Errors
    ///
    /// [`RecvError`]. After `TooLong` and `FdsLost` the record is gone, its descriptors are closed, and the next one
    /// can be read.
    pub fn recv_raw(&self) -> Result<Option<Record>, RecvError> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                // The other end closed with records of ours unread. The kernel says so once and first, though records
                // of the other end's are still queued here (its last words among them).
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(RecvError::TooLong);
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(RecvError::FdsLost);
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        bytes.truncate(received.bytes);
        bytes.shrink_to_fit();
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        Ok(Some(Record { bytes, fds }))
    }

    /// Takes the next message; `None`: the other end is closed.
    ///
    /// # Errors
    ///
    /// [`RecvError`]. After any but `WouldBlock` and `Io` the record is gone and the next one can be read.
    pub fn recv<T: Message>(&self) -> Result<Option<Received<T>>, RecvError> {
        self.recv_raw()?.map(Record::decode).transpose()
    }
}

impl Record {
    /// Reads the JSON text.
    ///
    /// # Errors
    ///
    /// [`RecvError::Malformed`] when it is not a JSON object with a `type`, or its `type` is known but its fields are
    /// not right.
    pub fn decode<T: Message>(self) -> Result<Received<T>, RecvError> {
        #[derive(serde::Deserialize)]
        struct Head {
            r#type: String,
        }
        // serde would take an array of the fields' values too.
        if self.bytes.trim_ascii_start().first() != Some(&b'{') {
            let error = serde::de::Error::custom("not a JSON object");
            return Err(RecvError::Malformed { message: None, error });
        }
        let malformed = |message| move |error| RecvError::Malformed { message, error };
        let Head { r#type } = serde_json::from_slice(&self.bytes).map_err(malformed(None))?;
        if !T::TYPES.contains(&&*r#type) {
            return Ok(Received::Unknown { message: r#type });
        }
        let message = serde_json::from_slice(&self.bytes).map_err(malformed(Some(r#type)))?;
        Ok(Received::Message { message, fds: self.fds })
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

#[cfg(test)]
mod tests;
