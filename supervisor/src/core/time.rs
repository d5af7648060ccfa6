//! Moments, without a clock.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A moment on the driver's monotonic clock, counted from an epoch that the driver chooses once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(Duration);

impl Time {
    /// The moment that lies this long after the driver's epoch.
    #[must_use]
    pub const fn since_epoch(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after the driver's epoch it is.
    #[must_use]
    pub const fn elapsed(self) -> Duration {
        self.0
    }

    /// The moment `wait` later (the last one there is, when that is out of range).
    #[must_use]
    pub const fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// How long it is from here to `later`; zero when that has passed.
    #[must_use]
    pub const fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }

    /// The same moment for a driver whose epoch is `now`; the epoch, when it has passed.
    pub(super) const fn rebased(self, now: Self) -> Self {
        Self(now.until(self))
    }
}
