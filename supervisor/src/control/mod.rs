//! The control socket: one JSON object per line each way, documented in docs/control.md.

pub mod client;
mod metrics;
pub mod server;
mod status;
mod text;

pub use metrics::metrics;
pub use status::{FailureStatus, GenerationStatus, ListenerStatus, Status, SupervisorStatus, UpgradeStatus};
pub use text::{sentence, span, table};

use crate::core::{Deny, Outcome};
use protocol::message::Generation;
use serde::{Deserialize, Serialize};

/// The longest request line, in bytes.
pub const MAX_REQUEST: usize = 4_096;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// What there is.
    Status,
    /// Replace the active generation; answered at its end.
    Upgrade {
        /// Make room by ending the oldest generation when the most are alive.
        #[serde(default)]
        evict_oldest: bool,
    },
    /// Undo an upgrade in its probation.
    Rollback,
}

/// What it gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// To `status`.
    Status(Box<Status>),
    /// It is done.
    Done {
        /// Which generation is active.
        active: Generation,
    },
    /// Nothing was changed.
    Denied {
        /// One of `stopping`, `leaving`, `too_many`, `no_probation`, `not_stored`, `out_of_generations`, `supervisor`.
        reason: String,
        /// One line for people, with the remedy.
        message: String,
    },
    /// The new generation failed before it was ready; the old one serves on.
    Failed {
        /// Which failed.
        generation: Generation,
        /// Why, in one line.
        reason: String,
    },
    /// The new generation was rolled back in its probation; the old one serves on.
    RolledBack {
        /// Which was rolled back.
        generation: Generation,
        /// Why, in one line.
        reason: String,
    },
    /// The request was not understood, or the supervisor ends before it could answer.
    Error {
        /// One line for people.
        message: String,
    },
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done { active } => Self::Done { active },
            Outcome::Denied(deny) => Self::denied(&deny),
            Outcome::Failed { generation, reason } => Self::Failed { generation, reason },
            Outcome::RolledBack { generation, reason } => Self::RolledBack { generation, reason },
        }
    }
}

impl Reply {
    fn denied(deny: &Deny) -> Self {
        let (reason, message) = match deny {
            Deny::Stopping => ("stopping", "the service is stopping".to_owned()),
            Deny::TooMany { oldest, sessions, left } => (
                "too_many",
                format!(
                    "as many generations as --max-generations allows are alive; the oldest, {oldest}, has {sessions} \
                     sessions left and ends in {} at the latest: wait for it, or use --evict-oldest",
                    span(*left)
                ),
            ),
            Deny::Leaving => ("leaving", "this supervisor is handing over to another; ask that one".to_owned()),
            Deny::NoProbation => {
                ("no_probation", "no upgrade is in its probation; start an upgrade instead".to_owned())
            }
            Deny::NotStored => (
                "not_stored",
                "the sockets are in no fd store, so another supervisor could not go on with them".to_owned(),
            ),
            Deny::OutOfGenerations => (
                "out_of_generations",
                "the generation numbers are used up while older generations live; stop and start the service"
                    .to_owned(),
            ),
        };
        Self::Denied { reason: reason.to_owned(), message }
    }
}

#[cfg(test)]
mod tests;
