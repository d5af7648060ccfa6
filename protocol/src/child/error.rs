//! What can go wrong for a child. Each message is complete in itself: one line for the operator.

use super::FD_VARIABLE;
use crate::channel::{InvalidChannel, MemfdError, RecvError, SendError};
use crate::keys::InvalidKeys;
use crate::ledger::LedgerError;
use crate::message::{Kind, MAX_KEPT_BYTES, VERSION_MAX, VERSION_MIN};
use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;

/// Why this process is not a supervised child, though it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// [`super::from_env`] came too late.
    #[error("take {FD_VARIABLE} out of the environment: {threads} threads run; do it before any is started")]
    Threads {
        /// How many.
        threads: usize,
    },
    /// The check needs /proc.
    #[error("look at this process in /proc (is it mounted?): {0}")]
    Proc(io::Error),
    /// The variable is not the number of a descriptor.
    #[error("read {FD_VARIABLE}={value:?}: not the number of a descriptor; it is set by moq-supervise, not by hand")]
    Variable {
        /// What it is.
        value: OsString,
    },
    /// No such descriptor is open.
    #[error("use descriptor {fd}, which {FD_VARIABLE} names: it is not open; was a wrapper program between?")]
    NotOpen {
        /// Which.
        fd: RawFd,
    },
    /// The descriptor is not a channel.
    #[error(transparent)]
    Channel(#[from] InvalidChannel),
    /// The runtime can't watch the channel.
    #[error("watch the channel: {0}")]
    Io(io::Error),
    /// `hello` can't be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The answer can't be read.
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// The supervisor closed the channel before it adopted this child.
    #[error("wait to be adopted: the supervisor is gone")]
    Gone,
    /// The supervisor says no.
    #[error("be adopted: the supervisor refuses: {error}")]
    Refused {
        /// Why.
        error: String,
    },
    /// The supervisor hands over something else than was asked for.
    #[error("be adopted: {0}")]
    Adopt(AdoptError),
}

/// What is wrong with an `adopt` message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// A version that was not offered.
    #[error("protocol version {0} was not offered ({VERSION_MIN} to {VERSION_MAX} were)")]
    Version(u32),
    /// A generation number that fits into no connection ID.
    #[error("generation {0} is not within 1 to 65535")]
    Generation(u32),
    /// The message lists another number of descriptors than came with it.
    #[error("{listed} descriptors are listed, {came} came")]
    Fds {
        /// As listed: keys, kept secrets, ledger, members.
        listed: usize,
        /// As come.
        came: usize,
    },
    /// A listener that was not asked for.
    #[error("listener {name:?} of kind {kind} was not asked for")]
    Unwanted {
        /// Its name.
        name: String,
        /// Its kind.
        kind: Kind,
    },
    /// A listener that was asked for is not among them.
    #[error("listener {name:?} is missing")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A member number that is too high, or is given twice.
    #[error("member {member} of listener {name:?} is too high or given twice")]
    Member {
        /// The listener.
        name: String,
        /// The number.
        member: u16,
    },
    /// A stream listener comes as one socket.
    #[error("listener {name:?} comes as {sockets} sockets instead of one")]
    Sockets {
        /// The listener.
        name: String,
        /// How many.
        sockets: usize,
    },
    /// A descriptor is not the kind of socket that it should be.
    #[error("the descriptor of listener {name:?} is not {expected}")]
    Socket {
        /// The listener.
        name: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A secret that an earlier generation kept can't be read.
    #[error("kept secret {name:?}: {error}")]
    Kept {
        /// Its name.
        name: String,
        /// Why.
        error: MemfdError,
    },
    /// The keys can't be read.
    #[error(transparent)]
    Memfd(#[from] MemfdError),
    /// The keys are in another form.
    #[error(transparent)]
    Keys(#[from] InvalidKeys),
    /// The ledger is none.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Why a secret can't be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The name is not 1 to 64 of `a-z 0-9 - _ .`.
    #[error("keep a secret named {0:?}: a name is 1 to 64 of a-z 0-9 - _ .")]
    Name(String),
    /// It is too long.
    #[error("keep a secret of {0} bytes: at most {MAX_KEPT_BYTES} are allowed")]
    TooLong(usize),
    /// The kernel gives no memfd.
    #[error("make a memfd: {0}")]
    Io(io::Error),
}
