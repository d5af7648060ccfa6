//! The child's side: what a server needs to be supervised.
//!
//! ```no_run
//! use protocol::child::{self, Command};
//! use protocol::message::{Hello, Wanted};
//!
//! # async fn serve(child: child::Unadopted) -> Result<(), child::Error> {
//! // In main, before any thread starts: let child = child::from_env()?;
//! let (supervisor, adoption) = child.hello(Hello::new("echo", "1.0", vec![Wanted::tcp("echo", "[::]:7")])).await?;
//! let (sender, mut receiver) = supervisor.split();
//! // ... start to serve on adoption.listeners, then:
//! sender.ready();
//! while let Some(command) = receiver.next().await {
//!     if let Command::Activate { seq } = command {
//!         sender.ack(seq);
//!     }
//! }
//! // The supervisor is gone: drain and end.
//! # Ok(())
//! # }
//! ```

mod adoption;
mod error;
mod estate;
mod link;
mod receiver;
mod sender;

pub use adoption::{Adoption, DrainSettings, Listener, Member, Socket};
pub use error::{AdoptError, Error, KeepError};
pub use estate::Estate;
pub use receiver::{Command, Receiver};
pub use sender::Sender;

use crate::channel::{Channel, Received, RecvError};
use crate::message::{FromChild, Hello, ToChild};
use adoption::Assembly;
use link::Link;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The environment variable that names the descriptor of the channel, in decimal.
pub const FD_VARIABLE: &str = "MOQ_SUPERVISE_FD";

/// Takes the channel over from the environment: removes [`FD_VARIABLE`] and makes the descriptor close-on-exec, so that
/// no process that this one starts can mistake itself for the child. `None`: this process is not supervised.
///
/// To be called at the very start of `main`, before any thread runs (an async runtime counts), because the environment
/// can't be changed safely later; `/proc` must be mounted for the check.
///
/// # Errors
///
/// When the variable is set but other threads run, or it names no open unix SOCK_SEQPACKET socket.
pub fn from_env() -> Result<Option<Unadopted>, Error> {
    let Some(fd) = crate::sys::take_fd(FD_VARIABLE)? else { return Ok(None) };
    Ok(Some(Unadopted::new(Channel::from_fd(fd)?)))
}

/// A child that has not said `hello` yet.
#[derive(Debug)]
pub struct Unadopted(Channel);

/// A child's connection with its supervisor.
#[derive(Debug)]
pub struct Supervisor {
    link: Arc<Link>,
    /// What came between `hello` and the last `adopt`.
    early: VecDeque<(ToChild, Vec<OwnedFd>)>,
}

impl Unadopted {
    /// On a channel that came otherwise than by the environment.
    #[must_use]
    pub const fn new(channel: Channel) -> Self {
        Self(channel)
    }

    /// Says what this child wants, and waits for the sockets; a tokio runtime with I/O must run.
    ///
    /// # Errors
    ///
    /// When the supervisor refuses or is gone, or hands over something else than was asked for.
    pub async fn hello(self, hello: Hello) -> Result<(Supervisor, Adoption), Error> {
        let link = Arc::new(Link::new(self.0).map_err(Error::Io)?);
        let mut assembly = Assembly::new(&hello);
        link.post(&FromChild::Hello(hello), None)?;
        let mut early = VecDeque::new();
        loop {
            match link.recv().await {
                Ok(None) => return Err(Error::Gone),
                Ok(Some(Received::Unknown { message })) => link.unsupported(message),
                Ok(Some(Received::Message { message: ToChild::Refused { error }, .. })) => {
                    return Err(Error::Refused { error });
                }
                Ok(Some(Received::Message { message: ToChild::Adopt(adopt), fds })) => {
                    assembly = match assembly.add(adopt, fds).map_err(Error::Adopt)? {
                        adoption::Progress::More(assembly) => assembly,
                        adoption::Progress::Complete(adoption) => return Ok((Supervisor { link, early }, adoption)),
                    };
                }
                Ok(Some(Received::Message { message, fds })) => early.push_back((message, fds)),
                Err(RecvError::Malformed { message: Some(message), .. }) if message != "adopt" => {
                    link.unsupported(message);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Supervisor {
    /// As [`Sender::keep`].
    ///
    /// # Errors
    ///
    /// As [`Sender::keep`].
    pub fn keep(&self, name: &str, secret: &[u8]) -> Result<(), KeepError> {
        Sender::new(Arc::clone(&self.link)).keep(name, secret)
    }

    /// The half that speaks, which any thread may clone and use, and the half that listens. What the first can't send
    /// at once is sent while [`Receiver::next`] is awaited.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (Sender::new(Arc::clone(&self.link)), Receiver::new(self.link, self.early))
    }
}

#[cfg(test)]
mod tests;
