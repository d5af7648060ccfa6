//! What the policy is told, and what it says.

use super::{Backoff, Direction};
use std::time::Duration;

/// How a link to one peer is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The answer to a restart.
    pub restart: Restart,
    /// Leave for good, cleanly, at the first GOAWAY, close or failure.
    pub once: bool,
    /// The pace of dials.
    pub backoff: Backoff,
    /// How long a session that was told to go stays beside its replacement, from the replacement's set-up.
    pub handover: Duration,
}

/// The answer to a GOAWAY of a peer that restarts where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Dial the same place at once.
    Redial,
    /// Serve until the peer closes the session, then dial.
    Wait,
    /// Dial at once off a healthy session; serve until the close off one that was told before it was healthy, which
    /// means that the dial reached the process that is leaving.
    Handoff,
}

/// A dial, and the session that comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(super) u64);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<P> {
    /// A dial has become a session.
    Established(Id),
    /// A dial has failed.
    Failed(Id, Failure),
    /// The peer has sent its GOAWAY on this session, or in answer to a careful dial.
    Goaway(Id, Direction<P>),
    /// A session has ended.
    Closed(Id, Failure),
    /// The deadline has come.
    Wake,
}

/// Why a dial failed or a session ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer will say the same to the next dial.
    #[error("refused: {0}")]
    Final(String),
    /// Another dial may do better.
    #[error("{0}")]
    Passing(String),
}

/// What to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<P> {
    /// Dial this place. There is at most one dial at a time.
    Dial(Id, P, Manner),
    /// Close this session: its replacement has taken over.
    Retire(Id),
    /// For the log.
    Report(Report),
    /// Leave for good: close every session. `Some`: because of this.
    End(Option<Failure>),
}

/// How to dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// For a session that serves from the start: there is no other.
    Plain,
    /// While a session that was told to go serves on: first see, without taking or giving any content, whether the peer is
    /// leaving, and say so by [`Event::Goaway`] instead of [`Event::Established`]. Content that moved to a session which is
    /// told to go at once could move neither on nor back.
    Careful,
}

/// What an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The peer is leaving; a replacement is dialed while the session serves on.
    Moving,
    /// The peer is leaving; the session serves until it is closed.
    ServingOut,
    /// A dial follows after this long.
    Waiting(Duration),
    /// The sequence has ended; the next begins after this long.
    Ended(Error, Duration),
}

/// What a sequence ended with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Redirects led back to places that had redirected us away, for the whole backoff timeout.
    #[error("redirect loop: its peers have sent us back and forth for {}", humantime::format_duration(*.0))]
    RedirectLoop(Duration),
    /// No healthy session came about within the backoff timeout.
    #[error("gave up after {}: {last}", humantime::format_duration(*.after))]
    TimedOut {
        /// The backoff timeout.
        after: Duration,
        /// What failed last.
        last: Failure,
    },
    /// The peer refused in a way that only an operator can change.
    #[error("{0}")]
    Refused(Failure),
}
