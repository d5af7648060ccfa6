//! The half that listens.

use super::estate::Estate;
use super::link::Link;
use crate::channel::{Received, RecvError};
use crate::message::{Generation, GenerationStats, Stats, ToChild};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// What the supervisor wants. Those with a `seq` are to be answered by [`super::Sender::ack`] once carried out.
#[derive(Debug)]
pub enum Command {
    /// It gets the new handshakes: accept on every listener.
    Activate {
        /// For the ack.
        seq: u64,
    },
    /// New handshakes go to another: keep the sessions, stop accepting on stream listeners, finish handshakes that
    /// still arrive for a grace period.
    Standby {
        /// For the ack.
        seq: u64,
    },
    /// It gets a share of the new handshakes.
    Canary {
        /// For the ack.
        seq: u64,
        /// Of 1 000 new clients, how many.
        permille: u16,
    },
    /// Tell the sessions to go, close those that stay at their deadline, end when the last has ended. Acknowledge when
    /// that has begun.
    Drain {
        /// For the ack.
        seq: u64,
        /// From now to the last forced close.
        timeout: Duration,
        /// How long to spread the telling over; `None`: your own rule.
        spread: Option<Duration>,
    },
    /// Accept new sessions again without telling them to go.
    Undrain {
        /// For the ack.
        seq: u64,
    },
    /// It is the only generation left.
    Alone,
    /// Read certificates and the like afresh.
    Reload,
    /// UDP_GRO of all members has been set to this.
    Gro {
        /// Whether datagrams may be merged.
        on: bool,
    },
    /// Answer for these dead generations, and tell their clients.
    Heir(Vec<Estate>),
    /// Peer with that live generation over this stream.
    Link {
        /// The other end.
        generation: Generation,
        /// The connection.
        stream: UnixStream,
    },
    /// What the others said last: it may have to answer for the node.
    Counters {
        /// It publishes the node's statistics from now on, until [`Command::Drain`].
        speaks: bool,
        /// No other generation answers for the node any more, and what any has shown is in these counters. Until then who is
        /// active should not answer yet, but not wait for long either.
        settled: bool,
        /// The other live generations.
        generations: Vec<GenerationStats>,
        /// The generations that have gone, added up.
        gone: Stats,
    },
}

/// Listens to the supervisor, and sends what a [`super::Sender`] could not send at once.
#[derive(Debug)]
pub struct Receiver {
    link: Arc<Link>,
    early: VecDeque<(ToChild, Vec<OwnedFd>)>,
}

impl Receiver {
    pub(super) const fn new(link: Arc<Link>, early: VecDeque<(ToChild, Vec<OwnedFd>)>) -> Self {
        Self { link, early }
    }

    /// The next command; `None`: the supervisor is gone, so drain and end. What this build does not understand it
    /// answers with `unsupported` by itself. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Command> {
        loop {
            let (message, fds) = match self.early.pop_front() {
                Some(early) => early,
                None => match self.link.recv().await {
                    Ok(Some(Received::Message { message, fds })) => (message, fds),
                    Ok(Some(Received::Unknown { message })) => {
                        self.link.unsupported(message);
                        continue;
                    }
                    Err(RecvError::Malformed { message, .. }) => {
                        self.link.unsupported(message.unwrap_or_default());
                        continue;
                    }
                    Err(RecvError::TooLong | RecvError::FdsLost) => {
                        self.link.unsupported(String::new());
                        continue;
                    }
                    Ok(None) | Err(RecvError::Io(_) | RecvError::WouldBlock) => return None,
                },
            };
            match command(message, fds) {
                Ok(Some(command)) => return Some(command),
                Ok(None) => {}
                Err(Unusable(message)) => self.link.unsupported(message.to_owned()),
            }
        }
    }
}

/// The `type` of a message that is known, but not at this time or not with these descriptors.
struct Unusable(&'static str);

/// `None`: nothing to do.
fn command(message: ToChild, fds: Vec<OwnedFd>) -> Result<Option<Command>, Unusable> {
    Ok(Some(match message {
        ToChild::Adopt(_) => return Err(Unusable("adopt")),
        ToChild::Refused { .. } => return Err(Unusable("refused")),
        // An answer to an `unsupported` would come back for ever.
        ToChild::Unsupported { .. } => return Ok(None),
        ToChild::Activate { seq } => Command::Activate { seq },
        ToChild::Standby { seq } => Command::Standby { seq },
        ToChild::Canary { seq, permille } => Command::Canary { seq, permille: permille.min(1_000) },
        ToChild::Drain { seq, timeout_ms, spread_ms } => Command::Drain {
            seq,
            timeout: Duration::from_millis(timeout_ms),
            spread: spread_ms.map(Duration::from_millis),
        },
        ToChild::Undrain { seq } => Command::Undrain { seq },
        ToChild::Alone => Command::Alone,
        ToChild::Reload => Command::Reload,
        ToChild::Gro { on } => Command::Gro { on },
        ToChild::Heir { generations, ledgers } => {
            Command::Heir(super::estate::read(generations, ledgers, fds).ok_or(Unusable("heir"))?)
        }
        ToChild::Link { generation } => {
            let stream = stream(fds).ok_or(Unusable("link"))?;
            Command::Link { generation, stream }
        }
        ToChild::Counters { speaks, settled, generations, gone } => {
            Command::Counters { speaks, settled, generations, gone }
        }
    }))
}

fn stream(fds: Vec<OwnedFd>) -> Option<UnixStream> {
    let [fd] = <[OwnedFd; 1]>::try_from(fds).ok()?;
    super::adoption::is_unix_stream(&fd).then(|| UnixStream::from(fd))
}
