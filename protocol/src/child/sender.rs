//! The half that speaks.

use super::KeepError;
use super::link::Link;
use crate::channel::{SendError, sealed_memfd};
use crate::message::{FromChild, MAX_KEPT_BYTES, Stats, is_name};
use std::sync::Arc;
use std::time::Duration;

/// Speaks to the supervisor, from any thread, without ever waiting. While the supervisor does not read, messages are
/// queued, of the counters only the newest; when it is gone they are dropped, and [`super::Receiver::next`] says so.
#[derive(Clone, Debug)]
pub struct Sender(Arc<Link>);

impl Sender {
    pub(super) const fn new(link: Arc<Link>) -> Self {
        Self(link)
    }

    /// This child needs that much more time, from now on, to get ready.
    pub fn starting(&self, more: Duration) {
        self.post(&FromChild::Starting { more_ms: u64::try_from(more.as_millis()).unwrap_or(u64::MAX) });
    }

    /// It serves.
    pub fn ready(&self) {
        self.post(&FromChild::Ready);
    }

    /// It can't serve, and ends. The supervisor shows the first line, up to 4 096 bytes of it.
    pub fn failed(&self, error: &str) {
        self.post(&FromChild::Failed { error: line(error) });
    }

    /// It is no longer well. The supervisor shows the first line, up to 4 096 bytes of it.
    pub fn unhealthy(&self, reason: &str) {
        self.post(&FromChild::Unhealthy { reason: line(reason) });
    }

    /// A role command has been carried out.
    pub fn ack(&self, seq: u64) {
        self.post(&FromChild::Ack { seq });
    }

    /// Counters: to be sent once a second, and at changes. If the traffic counters make the message too long, it goes
    /// without them.
    pub fn stats(&self, stats: Stats) {
        let mut message = FromChild::Stats(stats);
        if let Err(SendError::TooLong { .. }) = self.0.post(&message, None) {
            if let FromChild::Stats(stats) = &mut message {
                stats.traffic.clear();
            }
            self.post(&message);
        }
    }

    /// Has a secret kept for later generations; the same name again replaces it.
    ///
    /// # Errors
    ///
    /// When the name is not 1 to 64 of `a-z 0-9 - _ .`, the secret is longer than 1 MiB, or the kernel gives no memfd.
    pub fn keep(&self, name: &str, secret: &[u8]) -> Result<(), KeepError> {
        if !is_name(name) {
            return Err(KeepError::Name(name.into()));
        }
        if secret.len() > MAX_KEPT_BYTES {
            return Err(KeepError::TooLong(secret.len()));
        }
        let memfd = sealed_memfd(name, secret).map_err(KeepError::Io)?;
        // The message is short, so it can be sent.
        let _ = self.0.post(&FromChild::Keep { name: name.into() }, Some(memfd));
        Ok(())
    }

    fn post(&self, message: &FromChild) {
        // All but counters are short by now, so they can be sent.
        let _ = self.0.post(message, None);
    }
}

/// The first line, cut where it gets too long for a log.
fn line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line[..line.floor_char_boundary(4_096)].to_owned()
}
