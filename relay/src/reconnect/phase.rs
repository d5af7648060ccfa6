//! What a link is doing.

use super::Id;
use std::time::Instant;

/// What comes next, and from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has begun, or `once` has ended it.
    Idle,
    Dialing(Id),
    Serving {
        id: Id,
        since: Instant,
        standing: Standing,
    },
    /// A dial follows.
    Waiting {
        until: Instant,
    },
    /// A new sequence follows.
    Resting {
        until: Instant,
    },
}

/// How the current session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not up for as long as the healthy threshold.
    Fresh,
    Healthy,
    /// Healthy for [`super::STABLE`].
    Stable,
    /// The peer is leaving, and this serves until it is closed.
    ServingOut {
        healthy: bool,
    },
}

/// A session that was told to go and serves on, while another one is dialed or beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) id: Id,
    /// When it was set up.
    pub(super) since: Instant,
    /// When it is closed by us; `None` while no replacement is healthy.
    pub(super) retire: Option<Instant>,
}
