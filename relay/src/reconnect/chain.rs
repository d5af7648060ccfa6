//! The chain of places that redirected us away: what tells a loop from a rolling restart.

use super::{Backoff, Luck, Place};
use std::time::{Duration, Instant};

/// The first wait before a redirect that leads back, when the initial backoff is shorter. Jittered down to a half and
/// doubling, it lets at most 6 dials happen in the first second of a loop of two.
pub(super) const LOOP_FLOOR: Duration = Duration::from_millis(100);

/// Redirects of sessions that were not healthy, in a row, to places that are all new, after which each further one waits
/// as if it led back: a peer could name new places for ever.
pub(super) const HASTY: u32 = 8;

/// Places that are remembered: more than any cluster has to be walked through, and a bound for a peer that invents them.
const REMEMBERED: usize = 64;

/// The places that redirected us away since the chain began, and how often it led back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain<P> {
    left: Vec<P>,
    since: Option<Instant>,
    returns: u32,
    hasty: u32,
}

/// How to follow a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    AtOnce,
    After(Duration),
    /// Not any more: it has gone on for this long.
    Loop(Duration),
}

impl<P> Default for Chain<P> {
    fn default() -> Self {
        Self { left: Vec::new(), since: None, returns: 0, hasty: 0 }
    }
}

impl<P: Place> Chain<P> {
    /// A session has become healthy.
    pub(super) fn healthy(&mut self) {
        self.hasty = 0;
    }

    /// `from` has redirected us to `to`.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        from: P,
        to: &P,
        healthy: bool,
        backoff: &Backoff,
        luck: Luck,
    ) -> Follow {
        let since = *self.since.get_or_insert(now);
        if !healthy {
            self.hasty = self.hasty.saturating_add(1);
        }
        let returns = self.left.iter().any(|left| left.is(to));
        if !self.left.iter().any(|left| left.is(&from)) {
            if self.left.len() == REMEMBERED {
                self.left.remove(0);
            }
            self.left.push(from);
        }
        if !returns && self.hasty <= HASTY {
            return Follow::AtOnce;
        }
        if let Some(time) = backoff.timeout.filter(|time| since + *time <= now) {
            return Follow::Loop(time);
        }
        let longest = backoff.max.max(backoff.initial).max(LOOP_FLOOR);
        let factor = backoff.multiplier.max(2).saturating_pow(self.returns);
        let wait = backoff.initial.max(LOOP_FLOOR).saturating_mul(factor).min(longest);
        self.returns = self.returns.saturating_add(1);
        Follow::After(luck.jitter(wait))
    }
}
