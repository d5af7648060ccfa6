//! What a storm does, and when: a pure function of its seed.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::time::Duration;

/// One blow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `systemctl reload`, with a relay that is good.
    Upgrade,
    /// SIGUSR2: nobody waits for the outcome.
    UpgradeBySignal,
    /// `systemctl reload`, with a relay that fails like this.
    BadUpgrade(Bad),
    /// Another file of the supervisor's program, then `systemctl reload`.
    SelfUpgrade,
    /// `systemctl restart`.
    Restart,
    /// SIGHUP.
    Certificates,
    /// SIGKILL to the supervisor.
    KillSupervisor,
    /// SIGKILL to one of the live relays: this one, counted from the oldest, modulo how many there are.
    KillRelay(usize),
}

/// In which way a new relay is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It ends with a status.
    Exits,
    /// It ends by a signal.
    Crashes,
    /// It can't be executed.
    IsNoProgram,
    /// It never becomes ready.
    Hangs,
    /// It serves, and dies in its probation.
    DiesInProbation,
}

/// A blow and the pause before it, from the blow before on, whether that is over or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The pause.
    pub pause: Duration,
    /// The blow.
    pub fault: Fault,
}

/// Endless. The same seed gives the same steps.
#[derive(Clone, Debug)]
pub struct Plan(StdRng);

/// The longest pause.
const LONGEST: Duration = Duration::from_millis(1_500);

impl Plan {
    /// The plan of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    fn pause(&mut self) -> Duration {
        // A third of all blows come within the one before: an upgrade takes some 400 ms, a start of the supervisor 30.
        let longest = if self.0.random_ratio(1, 3) { 120 } else { LONGEST.as_millis().try_into().unwrap_or(u64::MAX) };
        Duration::from_millis(self.0.random_range(0..longest))
    }

    fn fault(&mut self) -> Fault {
        match self.0.random_range(0..20) {
            0..=3 => Fault::Upgrade,
            4..=5 => Fault::UpgradeBySignal,
            6..=8 => Fault::BadUpgrade(self.bad()),
            9..=10 => Fault::SelfUpgrade,
            11..=12 => Fault::Restart,
            13 => Fault::Certificates,
            14..=17 => Fault::KillSupervisor,
            _ => Fault::KillRelay(self.0.random_range(0..12)),
        }
    }

    fn bad(&mut self) -> Bad {
        let all = [Bad::Exits, Bad::Crashes, Bad::IsNoProgram, Bad::Hangs, Bad::DiesInProbation];
        all[self.0.random_range(0..all.len())]
    }
}

impl Iterator for Plan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (pause, fault) = (self.pause(), self.fault());
        Some(Step { pause, fault })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_same_seed_is_the_same_storm_and_another_seed_another() {
        let steps = |seed| Plan::new(seed).take(100).collect::<Vec<_>>();
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
    }

    #[test]
    fn every_fault_comes_within_ten_minutes_and_within_one_every_kind() {
        let seen = |steps: usize| -> HashSet<String> {
            Plan::new(1).take(steps).map(|step| format!("{:?}", step.fault)).collect()
        };
        // A minute is some 100 steps.
        let kinds: HashSet<String> =
            seen(100).iter().map(|name| name.split('(').next().unwrap_or(name).to_owned()).collect();
        assert_eq!(kinds.len(), 8, "{kinds:?}");
        let bad = seen(1_000).into_iter().filter(|name| name.starts_with("BadUpgrade")).count();
        assert_eq!(bad, 5);
        assert!(Plan::new(1).take(1_000).all(|step| step.pause <= LONGEST));
    }
}
