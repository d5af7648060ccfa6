//! The channel in a tokio runtime: sending never waits, what does not fit is queued.

use crate::channel::{Channel, Received, RecvError, SendError};
use crate::message::{FromChild, ToChild};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Link {
    io: AsyncFd<Channel>,
    outbox: Mutex<VecDeque<Parcel>>,
    /// The outbox is no longer empty.
    queued: Notify,
}

/// A message that waits for room in the channel.
#[derive(Debug)]
struct Parcel {
    bytes: Vec<u8>,
    fd: Option<OwnedFd>,
    /// A newer one makes this one worthless.
    replaceable: bool,
}

impl Link {
    pub(super) fn new(channel: Channel) -> io::Result<Self> {
        Ok(Self { io: crate::sys::watch(channel)?, outbox: Mutex::default(), queued: Notify::new() })
    }

    /// Sends now, or queues behind what is queued. A supervisor that is gone is no error here: the receiver says so.
    ///
    /// # Errors
    ///
    /// What makes the message itself impossible to send.
    pub(super) fn post(&self, message: &FromChild, fd: Option<OwnedFd>) -> Result<(), SendError> {
        let bytes = serde_json::to_vec(message).map_err(SendError::Unwritable)?;
        if bytes.len() > crate::channel::MAX_MESSAGE {
            return Err(SendError::TooLong { bytes: bytes.len() });
        }
        let parcel = Parcel { bytes, fd, replaceable: matches!(message, FromChild::Stats(_)) };
        let mut outbox = self.outbox();
        match outbox.iter_mut().find(|queued| queued.replaceable && parcel.replaceable) {
            Some(queued) => *queued = parcel,
            None => outbox.push_back(parcel),
        }
        if self.flush(&mut outbox).is_err() {
            self.queued.notify_one();
        }
        Ok(())
    }

    pub(super) fn unsupported(&self, message: String) {
        // Its sender could send it, so it fits into the answer; and if not, no answer is no harm.
        let _ = self.post(&FromChild::Unsupported { message }, None);
    }

    /// The next message; meanwhile sends what is queued. Nothing is lost when the future is dropped.
    pub(super) async fn recv(&self) -> Result<Option<Received<ToChild>>, RecvError> {
        loop {
            let full = !self.outbox().is_empty();
            tokio::select! {
                ready = self.io.readable() => {
                    let received = ready.map_err(RecvError::Io)?.try_io(|io| match io.get_ref().recv() {
                        Err(RecvError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
                        received => Ok(received),
                    });
                    match received {
                        Ok(Ok(received)) => return received,
                        Ok(Err(error)) => return Err(RecvError::Io(error)),
                        Err(_would_block) => {}
                    }
                }
                ready = self.io.writable(), if full => {
                    // An error other than "would block" empties the outbox: its reader is gone.
                    let _ = ready.map_err(RecvError::Io)?.try_io(|_| self.flush(&mut self.outbox()));
                }
                () = self.queued.notified(), if !full => {}
            }
        }
    }

    /// Sends from the front until the channel is full; the only error is "would block".
    fn flush(&self, outbox: &mut VecDeque<Parcel>) -> io::Result<()> {
        while let Some(parcel) = outbox.front() {
            let fds: Vec<BorrowedFd<'_>> = parcel.fd.iter().map(AsFd::as_fd).collect();
            match self.io.get_ref().send_raw(&parcel.bytes, &fds) {
                Err(SendError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(SendError::Closed) => outbox.clear(),
                // One that can't be sent must not hold up those behind it.
                Ok(()) | Err(_) => drop(outbox.pop_front()),
            }
        }
        Ok(())
    }

    fn outbox(&self) -> MutexGuard<'_, VecDeque<Parcel>> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
