//! One child's channel in the loop: messages in, a bounded queue of messages out.

use crate::sys::watch::watch;
use protocol::channel::{Channel, Received, RecvError, SendError};
use protocol::message::{FromChild, ToChild};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;

/// Messages that wait for a child to read. The longest hand-over, 4 096 sockets at 253 a message, takes 17, and the
/// kernel holds some 200 kB besides; a child that leaves this much unread is not coming back.
const MAX_QUEUED: usize = 64;

/// What an operator is told of a child that closed its channel.
const CLOSED: &str = "it closed its channel";

/// The supervisor's end of one channel.
#[derive(Debug)]
pub(super) struct Link {
    channel: AsyncFd<Channel>,
    queue: VecDeque<Queued>,
    /// Nothing more is read after its end.
    ended: bool,
}

/// A message that waits. The descriptors are duplicates, since a listener may be closed meanwhile.
#[derive(Debug)]
struct Queued {
    message: ToChild,
    fds: Vec<OwnedFd>,
}

/// What a channel has to say.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message.
    Message(FromChild, Vec<OwnedFd>),
    /// Something else, in one line for the operator; the next one can be read.
    Garbage(String),
    /// Nothing more, in one line for the operator: it is closed, or broken.
    End(String),
}

impl Link {
    /// Takes our end of a pair into the loop.
    pub(super) fn new(channel: Channel) -> io::Result<Self> {
        Ok(Self { channel: watch(channel)?, queue: VecDeque::new(), ended: false })
    }

    /// Sends, or queues behind what is queued.
    ///
    /// # Errors
    /// One line for the operator when the child will never get it.
    pub(super) fn send(&mut self, message: ToChild, fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        if self.queue.is_empty() {
            match self.channel.get_ref().send(&message, fds) {
                Ok(()) => return Ok(()),
                // Until the child has read what is under way.
                Err(SendError::WouldBlock | SendError::TooManyInFlight) => {}
                // Whichever is noticed first, this or that there is nothing more to read, it is the same to an operator.
                Err(SendError::Closed) => return Err(CLOSED.to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
        if self.queue.len() >= MAX_QUEUED {
            return Err("it does not read its channel".to_owned());
        }
        let fds: io::Result<_> = fds.iter().map(BorrowedFd::try_clone_to_owned).collect();
        let fds = fds.map_err(|error| format!("the descriptors of a message can't be duplicated: {error}"))?;
        self.queue.push_back(Queued { message, fds });
        Ok(())
    }

    /// Our end of the channel.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.get_ref().as_fd()
    }

    /// The next thing heard; sends what is queued on the way.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        if self.ended {
            return Poll::Pending;
        }
        if let Err(line) = self.flush(cx) {
            self.ended = true;
            return Poll::Ready(Heard::End(line));
        }
        loop {
            let mut guard = match ready!(self.channel.poll_read_ready(cx)) {
                Ok(guard) => guard,
                Err(error) => return Poll::Ready(self.end(error.to_string())),
            };
            match guard.get_inner().recv::<FromChild>() {
                Err(RecvError::WouldBlock) => guard.clear_ready(),
                received => {
                    if let Some(heard) = self.heard(received) {
                        return Poll::Ready(heard);
                    }
                }
            }
        }
    }

    /// What came before the end of the child, whether or not the loop has been told that there is something.
    pub(super) fn last_words(&mut self) -> Vec<Heard> {
        let mut words = Vec::new();
        // A grandchild may hold the other end and go on talking; the child's own words are among the first.
        while !self.ended && words.len() < MAX_QUEUED {
            match self.channel.get_ref().recv::<FromChild>() {
                Err(RecvError::WouldBlock) => break,
                received => words.extend(self.heard(received)),
            }
        }
        words
    }

    fn heard(&mut self, received: Result<Option<Received<FromChild>>, RecvError>) -> Option<Heard> {
        match received {
            Ok(Some(Received::Message { message, fds })) => Some(Heard::Message(message, fds)),
            Ok(Some(Received::Unknown { message })) => {
                // An answer that finds no room is not worth more.
                let _ = self.send(ToChild::Unsupported { message }, &[]);
                None
            }
            Ok(None) => Some(self.end(CLOSED.to_owned())),
            Err(error @ RecvError::Io(_)) => Some(self.end(error.to_string())),
            Err(error) => Some(Heard::Garbage(error.to_string())),
        }
    }

    fn end(&mut self, line: String) -> Heard {
        self.ended = true;
        Heard::End(line)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        while let Some(Queued { message, fds }) = self.queue.front() {
            let mut guard = match self.channel.poll_write_ready(cx) {
                Poll::Ready(Ok(guard)) => guard,
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Pending => return Ok(()),
            };
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match guard.get_inner().send(message, &fds) {
                Ok(()) => drop(self.queue.pop_front()),
                Err(SendError::WouldBlock) => guard.clear_ready(),
                // Writable all the same: tried again when the child is next heard, or another event comes.
                Err(SendError::TooManyInFlight) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}
