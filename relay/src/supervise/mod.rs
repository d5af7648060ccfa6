//! The relay's end of the child protocol.

mod heir;
mod inbox;
mod report;

pub(crate) use heir::inherit;
pub(crate) use inbox::Inbox;
pub(crate) use report::{Gauges, report};

use protocol::child::{Command, Sender};

/// The connection to a supervisor, if there is one.
pub(crate) enum Link {
    /// The relay runs alone, or its supervisor is gone.
    Down,
    /// A supervisor gives the orders.
    Up {
        /// To it.
        sender: Sender,
        /// From it.
        receiver: Inbox,
        /// What it is told.
        gauges: Gauges,
    },
}

impl Link {
    /// The next order; `None` once, when the supervisor is gone. Waits for ever when there is none.
    pub(crate) async fn next(&mut self) -> Option<Command> {
        let Self::Up { receiver, .. } = self else { return std::future::pending().await };
        let command = receiver.next().await;
        if command.is_none() {
            *self = Self::Down;
        }
        command
    }

    /// An order has been carried out.
    pub(crate) fn ack(&self, seq: u64) {
        if let Self::Up { sender, .. } = self {
            sender.ack(seq);
        }
    }

    /// A secret for later generations.
    pub(crate) fn keep(&self, name: &str, secret: &[u8]) {
        if let Self::Up { sender, .. } = self {
            keep(sender, name, secret);
        }
    }

    /// The relay can't serve, and ends.
    pub(crate) fn failed(&self, error: &str) {
        if let Self::Up { sender, .. } = self {
            sender.failed(error);
        }
    }

    /// The counters as they are at the end.
    pub(crate) fn last_stats(&self) {
        if let Self::Up { sender, gauges, .. } = self {
            gauges.say(sender);
        }
    }

    /// The role has been lost: the counters as they are now are the last that this process shows.
    pub(crate) fn freeze(&self) {
        if let Self::Up { sender, gauges, .. } = self {
            gauges.freeze(sender);
        }
    }

    /// The role has come, perhaps again.
    pub(crate) fn thaw(&self) {
        if let Self::Up { gauges, .. } = self {
            gauges.thaw();
        }
    }
}

/// Hands a secret over for later generations. Without it they make their own, which costs their clients a new
/// fingerprint but nobody a session.
pub(crate) fn keep(sender: &Sender, name: &str, secret: &[u8]) {
    if let Err(error) = sender.keep(name, secret) {
        tracing::warn!(name, %error, "failed to hand a secret to the supervisor: the next generation makes its own");
    }
}
