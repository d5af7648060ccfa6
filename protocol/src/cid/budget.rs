//! How many stateless resets an endpoint sends.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many at once, and as many a second: a burst of orphans is answered as it comes, and a flood takes a few percent of a
/// core at most.
const BURST: u32 = 1_000;
/// From one to the next in the long run.
const INTERVAL: Duration = Duration::from_micros(50);

/// A bucket that fills with time.
#[derive(Debug)]
pub(super) struct Budget(Mutex<Instant>);

impl Budget {
    /// A full one.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(now.checked_sub(BURST * INTERVAL).unwrap_or(now)))
    }

    /// Takes one out, if there is one.
    pub(super) fn take(&self, now: Instant) -> bool {
        // When it would be full if nothing were taken out: one that was taken lies this much later.
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = now.checked_sub(BURST * INTERVAL).unwrap_or(*spent);
        let next = (*spent).max(oldest) + INTERVAL;
        if next > now {
            return false;
        }
        *spent = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_through_and_a_flood_is_not() {
        let budget = Budget::new();
        let now = Instant::now() + Duration::from_secs(1);
        let take = |now, tries: u32| (0..tries).filter(|_| budget.take(now)).count();
        assert_eq!(take(now, 5_000), 1_000);
        assert_eq!(take(now + Duration::from_millis(10), 5_000), 200);
        assert_eq!(take(now + Duration::from_secs(60), 5_000), 1_000);
    }
}
