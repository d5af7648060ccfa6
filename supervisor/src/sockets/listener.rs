//! One listener, what of it a generation holds, and what is needed for another to hold some.

use super::group::{Appended, Group};
use super::request::{Address, Request};
use super::runs::Run;
use super::unix::UnixSocket;
use protocol::message::Kind;
use serde::{Deserialize, Serialize};

/// Names a listener while it lives; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListenerId(u64);

impl ListenerId {
    pub(super) const FIRST: Self = Self(0);

    pub(super) const fn new(number: u64) -> Self {
        Self(number)
    }

    pub(super) const fn get(self) -> u64 {
        self.0
    }

    pub(super) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One address that is bound.
#[derive(Debug)]
pub(super) struct Listener {
    /// The port is never 0.
    pub(super) address: Address,
    pub(super) socket: Listening,
}

#[derive(Debug)]
pub(super) enum Listening {
    Quic(Group),
    Tcp(socket2::Socket),
    Unix(UnixSocket),
}

/// What one generation has of one listener.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) listener: ListenerId,
    pub(super) name: String,
    /// As asked for: the port may be 0.
    pub(super) requested: Address,
    pub(super) share: Share,
}

#[derive(Debug)]
pub(super) enum Share {
    /// Runs of members; their numbers go on from `first` through all runs.
    Members { first: usize, runs: Vec<Run> },
    /// All of it; the permissions that are wanted, where it has any.
    Whole { mode: Option<u32> },
}

/// The members that one generation has of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberShare {
    /// Names the listener; never used for another.
    pub listener: u64,
    /// The number of its first member there; the others follow.
    pub first: u16,
    /// How many.
    pub members: u16,
}

/// How a request will be met.
pub(super) struct Plan {
    pub(super) request: Request,
    pub(super) found: Option<ListenerId>,
    pub(super) runs: Vec<Run>,
}

/// What was bound for a plan.
pub(super) enum Fresh {
    Nothing,
    Members(Appended),
    Listener(Listener),
}

impl Fresh {
    pub(super) fn close(self) {
        match self {
            Self::Listener(listener) => listener.socket.close(),
            Self::Nothing | Self::Members(_) => {}
        }
    }
}

impl Listener {
    pub(super) const fn kind(&self) -> Kind {
        match self.socket {
            Listening::Quic(_) => Kind::Quic,
            Listening::Tcp(_) => Kind::Tcp,
            Listening::Unix(_) => Kind::Unix,
        }
    }
}

impl Listening {
    pub(super) const fn group(&self) -> Option<&Group> {
        match self {
            Self::Quic(group) => Some(group),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    pub(super) fn close(self) {
        match self {
            Self::Unix(socket) => socket.close(),
            Self::Quic(_) | Self::Tcp(_) => {}
        }
    }
}

impl Holding {
    pub(super) fn runs_of(&self, listener: ListenerId) -> &[Run] {
        match &self.share {
            Share::Members { runs, .. } if self.listener == listener => runs,
            Share::Members { .. } | Share::Whole { .. } => &[],
        }
    }

    /// Its members, if it has any.
    pub(super) fn share(&self) -> Option<MemberShare> {
        match &self.share {
            Share::Members { first, runs } => Some(MemberShare {
                listener: self.listener.get(),
                first: u16::try_from(*first).ok()?,
                members: u16::try_from(runs.iter().map(|run| run.len).sum::<usize>()).ok()?,
            }),
            Share::Whole { .. } => None,
        }
    }
}

impl Share {
    pub(super) const fn mode(&self) -> Option<u32> {
        match self {
            Self::Whole { mode } => *mode,
            Self::Members { .. } => None,
        }
    }
}
