//! Waits: exponential, capped, jittered.

use std::time::Duration;

/// The pace of dials within a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait. A session that lives as long is healthy.
    pub initial: Duration,
    /// What each further wait is multiplied by; at least 1.
    pub multiplier: u32,
    /// The longest wait.
    pub max: Duration,
    /// How long a sequence, or a chain of redirects that leads back, may take; `None`: for ever.
    pub timeout: Option<Duration>,
}

impl Backoff {
    /// The wait after one of `wait`.
    pub(super) fn next(&self, wait: Duration) -> Duration {
        wait.saturating_mul(self.multiplier.max(1)).min(self.max.max(self.initial))
    }
}

/// A number from 0 to 1 that jitter is drawn by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Luck(f64);

impl Luck {
    /// The shortest waits.
    pub const SHORT: Self = Self(0.0);
    /// The longest waits.
    pub const LONG: Self = Self(1.0);

    /// `None`: it is not from 0 to 1.
    #[must_use]
    pub fn new(luck: f64) -> Option<Self> {
        (0.0..=1.0).contains(&luck).then_some(Self(luck))
    }

    /// From a half of `wait` to all of it.
    pub(super) fn jitter(self, wait: Duration) -> Duration {
        wait.mul_f64(f64::midpoint(self.0, 1.0))
    }
}

/// The rests between sequences. They double up to a cap and are jittered, so that a cluster that lost one node does not
/// come back to it in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest(Duration);

/// The first rest.
const FIRST: Duration = Duration::from_secs(1);
/// The longest: a peer that returns after a long outage is found within it.
const LONGEST: Duration = Duration::from_secs(30);

impl Rest {
    /// The next rest.
    pub(super) fn next(&mut self, luck: Luck) -> Duration {
        let rest = luck.jitter(self.0);
        self.0 = (self.0 * 2).min(LONGEST);
        rest
    }
}

impl Default for Rest {
    fn default() -> Self {
        Self(FIRST)
    }
}
