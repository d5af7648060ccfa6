//! What can go wrong on a channel. Each message is complete in itself, because most end up as one line in a log or in a
//! message to the other side.

use super::{MAX_FDS, MAX_MESSAGE};
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;

/// A descriptor that can't be a channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidChannel {
    /// It is something else.
    #[error("use descriptor {0} as the channel: it is not a unix SOCK_SEQPACKET socket")]
    Kind(RawFd),
    /// Its flags can't be set.
    #[error("set up the channel: {0}")]
    Io(io::Error),
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The other end has not read what is queued; wait until the channel is writable.
    #[error("send a message: the other end does not read")]
    WouldBlock,
    /// The other end is closed.
    #[error("send a message: the other end of the channel is closed")]
    Closed,
    /// The message is longer than [`MAX_MESSAGE`].
    #[error("send a message of {bytes} bytes: at most {MAX_MESSAGE} fit into one record")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// More than [`MAX_FDS`] descriptors.
    #[error("send {fds} descriptors: at most {MAX_FDS} fit beside one record")]
    TooManyFds {
        /// How many.
        fds: usize,
    },
    /// More descriptors are under way in unread messages than RLIMIT_NOFILE allows to be open (ETOOMANYREFS, unix(7)).
    #[error(
        "send descriptors: more are in unread messages than this process may open; raise its limit of open files \
         (ulimit -n, LimitNOFILE=)"
    )]
    TooManyInFlight,
    /// The message can't be written as JSON.
    #[error("write a message as JSON: {0}")]
    Unwritable(serde_json::Error),
    /// Anything else, as sendmsg(2).
    #[error("send a message: {0}")]
    Io(io::Error),
}

impl From<Errno> for SendError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::WouldBlock,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Closed,
            Errno::TOOMANYREFS => Self::TooManyInFlight,
            other => Self::Io(other.into()),
        }
    }
}

/// Why there is no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// None has come yet; wait until the channel is readable.
    #[error("receive a message: none has come yet")]
    WouldBlock,
    /// A record longer than [`MAX_MESSAGE`] came, and is dropped.
    #[error("receive a message: longer than {MAX_MESSAGE} bytes")]
    TooLong,
    /// Not all descriptors of a record could be taken, and it is dropped with those that could (MSG_CTRUNC, recvmsg(2)).
    #[error(
        "receive the descriptors of a message: not all could be opened; raise this process's limit of open files \
         (ulimit -n, LimitNOFILE=)"
    )]
    FdsLost,
    /// It is not a message.
    #[error("read a message{}: {error}", .message.as_ref().map(|kind| format!(" of type {kind:?}")).unwrap_or_default())]
    Malformed {
        /// Its `type`, if that could be read.
        message: Option<String>,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// Anything else, as recvmsg(2).
    #[error("receive a message: {0}")]
    Io(io::Error),
}

impl From<Errno> for RecvError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::WouldBlock,
            other => Self::Io(other.into()),
        }
    }
}

/// Why a memfd can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemfdError {
    /// It is not a memfd, so reading it could block.
    #[error("read a memfd: the descriptor is something else")]
    Kind,
    /// It holds more than the reader takes.
    #[error("read a memfd: {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// What it holds.
        bytes: u64,
        /// What the reader takes.
        limit: usize,
    },
    /// Anything else, as read(2).
    #[error("read a memfd: {0}")]
    Io(io::Error),
}
