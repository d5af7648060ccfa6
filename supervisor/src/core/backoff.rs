//! When a crashed generation is started again.

use super::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The delay after the second failure in a row; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest delay.
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// As long as this in the active role, and the next failure counts as the first.
const STABLE: Duration = Duration::from_secs(60);
/// So many doublings are beyond the longest delay.
const TOP_LEVEL: u32 = 10;

/// At once, then exponential with jitter and a cap.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Backoff {
    /// Failures in a row, up to [`TOP_LEVEL`].
    level: u32,
    /// When the generation that became active last has proven itself.
    stable_at: Option<Time>,
    jitter: Jitter,
}

impl Backoff {
    pub(super) const fn new(seed: u64) -> Self {
        Self { level: 0, stable_at: None, jitter: Jitter(seed) }
    }

    /// Notes that a generation became active.
    pub(super) fn activated(&mut self, now: Time) {
        self.stable_at = Some(now.after(STABLE));
    }

    /// Notes that an upgrade has passed its probation: what fails from now on is another program.
    pub(super) fn proven(&mut self) {
        self.level = 0;
    }

    /// Notes a failure, and says how long to wait before the next start: zero, then from the upper half of 100 ms,
    /// 200 ms and so on to 30 s.
    pub(super) fn failed(&mut self, now: Time) -> Duration {
        if self.stable_at.take().is_some_and(|stable| stable <= now) {
            self.level = 0;
        }
        let level = self.level;
        self.level = (level + 1).min(TOP_LEVEL);
        let Some(doublings) = level.checked_sub(1) else { return Duration::ZERO };
        let longest = FIRST_DELAY.saturating_mul(1 << doublings).min(LONGEST_DELAY);
        longest / 2 + self.jitter.up_to(longest / 2)
    }

    /// Moves what lies in the future as if the present were the epoch, forgets where the jitter is, and that there is
    /// something to be reset when there is nothing.
    pub(super) fn rebase(&mut self, now: Time) {
        self.stable_at = self.stable_at.map(|stable| stable.rebased(now)).filter(|_| self.level > 0);
        self.jitter = Jitter(0);
    }
}

/// SplitMix64: delays need to differ between hosts, not to be unpredictable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Jitter(u64);

impl Jitter {
    /// Anything from zero to `longest`, in whole milliseconds.
    fn up_to(&mut self, longest: Duration) -> Duration {
        let choices = longest.as_millis() + 1;
        Duration::from_millis(u64::try_from(u128::from(self.next()) % choices).unwrap_or_default())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(count: usize) -> Vec<Duration> {
        let mut backoff = Backoff::new(7);
        (0..count).map(|_| backoff.failed(Time::default())).collect()
    }

    #[test]
    fn the_first_respawn_is_at_once_and_the_next_ones_double() {
        let delays = delays(6);
        assert_eq!(delays[0], Duration::ZERO);
        for (delay, longest) in delays[1..].iter().zip([100, 200, 400, 800, 1600]) {
            let longest = Duration::from_millis(longest);
            assert!(*delay >= longest / 2 && *delay <= longest, "{delay:?} of {longest:?}");
        }
    }

    #[test]
    fn delays_end_at_thirty_seconds() {
        let delays = delays(100);
        assert!(delays.iter().all(|delay| *delay <= LONGEST_DELAY));
        assert!(delays[20..].iter().all(|delay| *delay >= LONGEST_DELAY / 2));
    }

    /// The numbers that the generator's authors publish for this seed.
    #[test]
    fn the_jitter_is_splitmix64() {
        let mut jitter = Jitter(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([jitter.next(), jitter.next(), jitter.next()], expected);
        assert_eq!(jitter.up_to(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_rebased_one_goes_on_from_the_epoch_and_knows_no_jitter() {
        let now = Time::default().after(Duration::from_secs(7));
        let mut backoff = Backoff::new(7);
        backoff.activated(now);
        backoff.rebase(now);
        assert_eq!(backoff, Backoff::new(0));
        backoff.failed(now);
        backoff.activated(now);
        backoff.rebase(now);
        assert_eq!((backoff.level, backoff.stable_at), (1, Some(Time::default().after(STABLE))));
    }

    #[test]
    fn what_fails_after_it_was_proven_fails_for_the_first_time() {
        let mut backoff = Backoff::new(7);
        for _ in 0..8 {
            backoff.failed(Time::default());
        }
        backoff.proven();
        assert_eq!(backoff.failed(Time::default()), Duration::ZERO);
        assert!(backoff.failed(Time::default()) > Duration::ZERO);
    }

    #[test]
    fn delays_differ_between_seeds() {
        let delay = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..5).map(|_| backoff.failed(Time::default())).last()
        };
        assert_ne!(delay(1), delay(2));
        assert_eq!(delay(1), delay(1));
    }

    #[test]
    fn a_stable_minute_resets_and_less_does_not() {
        let mut backoff = Backoff::new(7);
        for _ in 0..8 {
            backoff.failed(Time::default());
        }
        backoff.activated(Time::default());
        assert!(backoff.failed(Time::default().after(STABLE - Duration::from_millis(1))) > Duration::ZERO);
        backoff.activated(Time::default());
        assert_eq!(backoff.failed(Time::default().after(STABLE)), Duration::ZERO);
    }
}
