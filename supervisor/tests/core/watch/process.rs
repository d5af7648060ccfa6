//! One process, as it was seen from outside.

use protocol::message::Generation;
use std::collections::BTreeSet;
use supervisor::core::{Kill, Time};

/// What a child was last told to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Nothing,
    Activate,
    Standby,
    /// It is to be gone by then: its deadline and the grace.
    Drain {
        ends: Time,
    },
    Undrain,
}

/// One process, from the order to start it until it was seen to end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) running: bool,
    pub(crate) greeted: bool,
    /// The dead whose members it was offered.
    pub(crate) takes_over: Option<Generation>,
    /// The dead that it was told to answer for.
    pub(crate) heir_of: BTreeSet<Generation>,
    /// `Adopt` was ordered and not answered.
    pub(crate) adopting: bool,
    pub(crate) adopted: bool,
    pub(crate) ready: bool,
    /// The kernel steered to it at some time.
    pub(crate) steered: bool,
    pub(crate) told: Told,
    /// The role that it could acknowledge.
    pub(crate) role: Option<u64>,
    pub(crate) unreachable: bool,
    pub(crate) killed: Option<Kill>,
    /// When it hangs in the kernel, if it got SIGKILL.
    pub(crate) stuck_at: Option<Time>,
    /// It said that it ends, so nothing more is to be expected of it.
    pub(crate) failed: bool,
    /// It was adopted or told that UDP_GRO is on.
    pub(crate) gro: bool,
}

impl Process {
    pub(super) fn new() -> Self {
        Self {
            running: false,
            greeted: false,
            takes_over: None,
            heir_of: BTreeSet::new(),
            adopting: false,
            adopted: false,
            ready: false,
            steered: false,
            told: Told::Nothing,
            role: None,
            unreachable: false,
            killed: None,
            stuck_at: None,
            failed: false,
            gro: true,
        }
    }

    /// Whether a new one is to be peered with it.
    pub(super) fn is_peer(&self) -> bool {
        self.killed.is_none() && self.can_be_peer()
    }

    /// Whether a new one may be peered with it: also if it drains after a SIGTERM, which here looks like an eviction.
    pub(super) fn can_be_peer(&self) -> bool {
        let drains = matches!(self.told, Told::Drain { .. }) && self.killed == Some(Kill::Term);
        (self.killed.is_none() || drains) && self.ready && !self.unreachable && self.told != Told::Nothing
    }

    /// Whether not even SIGKILL ended it in time.
    pub(super) fn is_stuck(&self, now: Time) -> bool {
        self.stuck_at.is_some_and(|stuck_at| stuck_at <= now)
    }
}
