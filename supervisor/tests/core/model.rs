//! The model checker over the real core: every order in which things can happen, up to a number of upgrades and faults.
//!
//! Time jumps from deadline to deadline, and a state is what [`World::canonical`] leaves of it, so that lives which go
//! on alike are one state however they came about.

use crate::life::settings;
use crate::watch::Told;
use crate::world::{Move, Saying, World};
use stateright::{Checker, Model, Property};
use std::time::Duration;
use supervisor::core::{ExitStatus, Settings};

/// What is explored.
struct Lifecycle {
    settings: Settings,
    budget: Budget,
    /// Which faults are among those that happen.
    faults: fn(&Move) -> bool,
}

/// How much can still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    upgrades: u8,
    rollbacks: u8,
    faults: u8,
    stops: u8,
    leaves: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    world: World,
    left: Budget,
}

impl Model for Lifecycle {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        let mut world = World::new(self.settings.clone(), 0);
        world.watch.timed = false;
        world.make(Move::Start);
        vec![State { world: world.canonical(), left: self.budget }]
    }

    fn actions(&self, state: &State, moves: &mut Vec<Move>) {
        let world = &state.world;
        if world.violation.is_some() || world.watch.exit.is_some() {
            return;
        }
        let left = state.left;
        let affordable = |made: &Move| match cost(*made) {
            Cost::Nothing => true,
            Cost::Upgrade => left.upgrades > 0,
            Cost::Rollback => left.rollbacks > 0,
            Cost::Fault => left.faults > 0 && (self.faults)(made),
            Cost::Stop => left.stops > 0,
            Cost::Leave => left.leaves > 0,
        };
        let mut duties = world.duties();
        duties.retain(affordable);
        // A driver answers before it looks at anything else, except that more can have happened by the time it steers.
        if duties.iter().any(|duty| !matches!(duty, Move::Steered | Move::SteerFailed | Move::Exits(..))) {
            moves.extend(duties);
            return;
        }
        // A child acknowledges a role before anything else happens, or never.
        if let Some((&generation, _)) = world.watch.processes.iter().find(|(_, process)| process.role.is_some()) {
            moves.push(Move::Says(generation, Saying::Ack));
            moves.extend(Some(Move::Ignores(generation)).filter(affordable));
            return;
        }
        let progress = world.progress();
        // Time passes when nobody has anything to do, or as a fault of those who have: children, and processes that
        // don't end. A driver always answers.
        let answered = duties.iter().all(|duty| matches!(duty, Move::Exits(..)));
        if answered && (duties.is_empty() && progress.is_empty() || left.faults > 0) {
            moves.push(Move::Tick);
        }
        moves.extend(duties);
        if left.faults > 0 {
            moves.extend(world.faults().into_iter().filter(|made| (self.faults)(made) && !progress.contains(made)));
        }
        moves.extend(progress);
        let requests = [
            Move::Upgrade { waits: true, evict_oldest: false },
            Move::Upgrade { waits: true, evict_oldest: true },
            Move::Rollback,
            Move::Stop,
            Move::Leave { stored: true },
        ];
        moves.extend(requests.into_iter().filter(affordable));
    }

    fn next_state(&self, state: &State, made: Move) -> Option<State> {
        let State { mut world, mut left } = state.clone();
        world.make(made);
        let progress = state.world.progress();
        // To dawdle is a fault, and so is to say the right thing at the wrong time.
        let wrong = match made {
            Move::Tick => !progress.is_empty() || !state.world.duties().is_empty(),
            Move::Says(..) => !progress.contains(&made),
            _ => false,
        };
        let spent = match cost(made) {
            Cost::Nothing if wrong => Some(&mut left.faults),
            Cost::Nothing => None,
            Cost::Upgrade => Some(&mut left.upgrades),
            Cost::Rollback => Some(&mut left.rollbacks),
            Cost::Fault => Some(&mut left.faults),
            Cost::Stop => Some(&mut left.stops),
            Cost::Leave => Some(&mut left.leaves),
        };
        if let Some(spent) = spent {
            *spent = spent.checked_sub(1)?;
        }
        Some(State { world: world.canonical(), left })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("every order is right", |_, state: &State| state.world.violation.is_none()),
            Property::sometimes("six live", |_, state: &State| state.world.watch.processes.len() >= 6),
            Property::sometimes("one is on standby", |_, state: &State| state.world.watch.standby().is_some()),
            Property::sometimes("one stands in", |_, state: &State| {
                state.world.watch.processes.values().any(|process| process.told == Told::Undrain)
            }),
            Property::sometimes("the service ends", |_, state: &State| state.world.watch.exit.is_some()),
        ]
    }
}

enum Cost {
    Nothing,
    Upgrade,
    Rollback,
    Fault,
    Stop,
    Leave,
}

fn cost(made: Move) -> Cost {
    match made {
        Move::Start
        | Move::Checked { well: true }
        | Move::Spawned(_)
        | Move::Adopted(_)
        | Move::Steered
        | Move::Probed { well: true }
        | Move::Says(_, Saying::Hello | Saying::Ready | Saying::Ack)
        | Move::Exits(_, ExitStatus::Signal(9))
        | Move::Reload
        | Move::Tick
        | Move::Wait => Cost::Nothing,
        Move::Upgrade { .. } => Cost::Upgrade,
        Move::Rollback => Cost::Rollback,
        Move::Stop => Cost::Stop,
        Move::Leave { .. } => Cost::Leave,
        Move::Checked { well: false }
        | Move::SpawnFailed(_)
        | Move::AdoptFailed(_)
        | Move::SteerFailed
        | Move::Probed { well: false }
        | Move::Exits(..)
        | Move::ChannelLost(_)
        | Move::Garbage(_)
        | Move::Ignores(_)
        | Move::Says(..) => Cost::Fault,
    }
}

/// Explores all of it, and what is to be seen on the way.
fn explore(name: &str, model: Lifecycle, sights: &[&'static str]) {
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{name}: {} states, {} of them unique", checker.state_count(), checker.unique_state_count());
    if let Some(path) = checker.discovery("every order is right") {
        let violation = path.last_state().world.violation.clone().unwrap_or_default();
        panic!("{name}: {violation}\nafter {:?}", path.into_actions());
    }
    for sight in sights {
        assert!(checker.discovery(sight).is_some(), "{name}: never seen: {sight}");
    }
}

/// Everything that can go wrong.
fn any(_: &Move) -> bool {
    true
}

/// Ends of processes, and what the driver can't do.
fn crashes(made: &Move) -> bool {
    matches!(made, Move::Exits(..) | Move::SpawnFailed(_) | Move::SteerFailed)
}

/// Six generations beside each other, each upgrade committed at its switch.
fn without_probation(faults: u8, kinds: fn(&Move) -> bool) -> Lifecycle {
    Lifecycle {
        settings: Settings { max_generations: 6, probation: Duration::ZERO, ..settings() },
        budget: Budget { upgrades: 6, rollbacks: 0, faults, stops: 1, leaves: 0 },
        faults: kinds,
    }
}

/// Six generations beside each other, with probation and a rollback.
fn with_probation(faults: u8) -> Lifecycle {
    Lifecycle {
        settings: Settings { max_generations: 6, ..settings() },
        budget: Budget { upgrades: 6, rollbacks: 1, faults, stops: 1, leaves: 0 },
        faults: crashes,
    }
}

/// Few generations, and everything that there is.
fn whatever_goes_wrong(faults: u8) -> Lifecycle {
    Lifecycle {
        settings: Settings { max_generations: 3, health: true, check: true, ..settings() },
        budget: Budget { upgrades: 2, rollbacks: 1, faults, stops: 2, leaves: 1 },
        faults: any,
    }
}

/// Few generations that crash again and again, up to the last resort.
fn crash_loops(faults: u8) -> Lifecycle {
    Lifecycle {
        settings: Settings { max_generations: 3, probation: Duration::ZERO, ..settings() },
        budget: Budget { upgrades: 2, rollbacks: 0, faults, stops: 1, leaves: 0 },
        faults: crashes,
    }
}

#[test]
fn six_generations_without_probation_keep_the_invariants() {
    explore("six generations, no probation", without_probation(0, crashes), &["six live", "the service ends"]);
}

#[test]
fn six_generations_with_probation_keep_the_invariants() {
    explore("six generations, probation", with_probation(0), &["six live", "one is on standby", "the service ends"]);
}

#[test]
fn whatever_goes_wrong_keeps_the_invariants() {
    explore("anything", whatever_goes_wrong(1), &["one is on standby", "the service ends"]);
}

#[test]
fn crash_loops_keep_the_invariants() {
    explore("crash loops", crash_loops(4), &["one stands in", "the service ends"]);
}

#[test]
#[ignore = "minutes, and in a release build: cargo test --release -p moq-supervise --test core -- --ignored --nocapture"]
fn more_faults_keep_the_invariants() {
    explore("six generations, no probation, any fault", without_probation(1, any), &["six live"]);
    explore("six generations, probation, one crash", with_probation(1), &["six live", "one is on standby"]);
    explore("anything, twice", whatever_goes_wrong(2), &["one is on standby"]);
    explore("crash loops of six", crash_loops(6), &["one stands in"]);
}
