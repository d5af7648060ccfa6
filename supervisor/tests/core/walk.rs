//! Seeded random walks: everything happens in any order, and the reference model watches.

use crate::world::{Move, World};
use protocol::message::ToChild;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use supervisor::core::{Action, Deny, ExitStatus, Kill, Note, Outcome, Settings};

/// A million steps, or `MOQ_WALK_STEPS`, from seed 1 or `MOQ_WALK_SEED` on.
#[test]
fn no_walk_leads_to_a_violation() {
    let steps = from_env("MOQ_WALK_STEPS").unwrap_or(1_000_000);
    let seed = from_env("MOQ_WALK_SEED").unwrap_or(1);
    walk_all(seed, steps);
}

/// What a walk has to have come by, so that it says something.
const SIGHTS: [&str; 20] = [
    "commit",
    "rollback",
    "failure",
    "too many",
    "out of probation",
    "denied at a stop",
    "denied while leaving",
    "drain",
    "drain by signal",
    "kill",
    "stand-in",
    "takeover",
    "flush",
    "alone",
    "heir",
    "heir to one that died in a stop",
    "lost",
    "lost while active",
    "forget",
    "exit",
];

/// What the log says of a generation of which nobody knows whether it lives.
const LOST: &str = "can neither be found nor be told anything";

/// Walks until so many steps are done; each seed is one life from start to end.
fn walk_all(first_seed: u64, steps: u64) {
    let mut walked = Walked::default();
    let mut lives = 0;
    while walked.steps < steps {
        walk(first_seed + lives, &mut walked);
        lives += 1;
    }
    let Walked { steps, generations, sights } = walked;
    println!("{steps} steps in {lives} lives, up to {generations} generations at once: {sights:?}");
    assert!(generations >= 6);
    for sight in SIGHTS {
        assert!(sights.contains_key(sight), "no walk came by: {sight}");
    }
}

#[derive(Default)]
struct Walked {
    steps: u64,
    generations: usize,
    sights: BTreeMap<&'static str, u64>,
}

fn walk(seed: u64, walked: &mut Walked) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::new(random_settings(&mut random), seed);
    // How faulty children are, how fast time passes, and how long a life lasts.
    let pace = Pace {
        faults: *[1, 10, 60].choose(&mut random).unwrap(),
        time: *[1, 5, 30].choose(&mut random).unwrap(),
        spawns_fail: random.random_range(0..4) == 0,
    };
    let length = random.random_range(20..3_000);
    let mut last = VecDeque::new();
    for step in 0..length {
        let made = if step == 0 { Move::Start } else { next(&world, &pace, &mut random) };
        if last.len() == 40 {
            last.pop_front();
        }
        last.push_back(made);
        let actions = world.make(made);
        for sight in actions.iter().filter_map(|action| sight(action, world.watch.ending)) {
            *walked.sights.entry(sight).or_default() += 1;
        }
        if let Some(violation) = &world.violation {
            panic!("seed {seed}, step {step}: {violation}\nlast moves: {last:?}");
        }
        walked.steps += 1;
        walked.generations = walked.generations.max(world.watch.processes.len());
        if world.watch.exit.is_some() {
            return;
        }
    }
}

fn sight(action: &Action, ending: bool) -> Option<&'static str> {
    Some(match action {
        Action::Reply { outcome, .. } => match outcome {
            Outcome::Done { .. } => "commit",
            Outcome::Failed { .. } => "failure",
            Outcome::RolledBack { .. } => "rollback",
            Outcome::Denied(Deny::TooMany { .. }) => "too many",
            Outcome::Denied(Deny::NoProbation) => "out of probation",
            Outcome::Denied(Deny::Stopping) => "denied at a stop",
            Outcome::Denied(Deny::Leaving) => "denied while leaving",
            Outcome::Denied(Deny::NotStored | Deny::OutOfGenerations) => return None,
        },
        Action::Send { message: ToChild::Drain { .. }, .. } => "drain",
        Action::Send { message: ToChild::Undrain { .. }, .. } => "stand-in",
        Action::Send { message: ToChild::Alone, .. } => "alone",
        Action::Note(Note::Warn(line)) if line.contains("acknowledge drain") => "drain by signal",
        Action::Kill { how: Kill::Group, .. } => "kill",
        Action::Adopt { flush: true, .. } => "flush",
        Action::Adopt { takes_over: Some(_), .. } => "takeover",
        Action::Note(Note::Warn(line)) if line.starts_with("active") && line.contains(LOST) => "lost while active",
        Action::Note(Note::Info(line)) if line.contains(LOST) => "lost",
        Action::Heir { .. } if ending => "heir to one that died in a stop",
        Action::Heir { .. } => "heir",
        Action::Forget { .. } => "forget",
        Action::Exit { .. } => "exit",
        _ => return None,
    })
}

/// How often what happens, beside 85 moves of drivers and children that do what they should.
pub(crate) struct Pace {
    pub(crate) faults: u32,
    pub(crate) time: u32,
    /// Orders to the driver fail as often as not, and crashes are the commonest fault.
    pub(crate) spawns_fail: bool,
}

pub(crate) fn next(world: &World, pace: &Pace, random: &mut StdRng) -> Move {
    // The first generation decides over the whole life: it mostly gets the chance to come up.
    let careful = !world.watch.serving && random.random_range(0..50) > 0;
    let (faults, time) = if careful { (0, 0) } else { (pace.faults, pace.time) };
    let kind = random.random_range(0..100 + faults + time);
    let moves = if kind < 85 {
        let mut moves = world.duties();
        moves.extend(world.progress());
        moves
    } else if kind < 100 {
        world.requests()
    } else if kind < 100 + time {
        vec![Move::Tick, Move::Tick, Move::Wait]
    } else {
        let mut moves = world.faults();
        if pace.spawns_fail && random.random() {
            moves.retain(|made| matches!(made, Move::Exits(..)));
        }
        moves
    };
    let rare = |made: &Move| match made {
        Move::Stop | Move::Leave { stored: true } | Move::Exits(_, ExitStatus::Code(0)) => true,
        Move::SpawnFailed(_) | Move::AdoptFailed(_) | Move::SteerFailed | Move::Checked { well: false } => careful,
        _ => false,
    };
    let unlikely = |made: &Move| matches!(made, Move::SpawnFailed(_) | Move::AdoptFailed(_) | Move::SteerFailed);
    match moves.choose(random) {
        Some(made) if rare(made) && random.random_range(0..40) > 0 => Move::Reload,
        Some(made) if !pace.spawns_fail && unlikely(made) && random.random_range(0..4) > 0 => Move::Reload,
        Some(made) => *made,
        None if careful => Move::Reload,
        None => Move::Tick,
    }
}

pub(crate) fn random_settings(random: &mut StdRng) -> Settings {
    let mut one_of = |choices: &[u64]| Duration::from_millis(*choices.choose(random).unwrap());
    let (drain_timeout, ready_timeout, probation, stop_timeout) =
        (one_of(&[0, 5_000, 600_000]), one_of(&[100, 30_000]), one_of(&[0, 2_000, 10_000]), one_of(&[0, 500, 10_000]));
    Settings {
        drain_timeout,
        stop_timeout: (!stop_timeout.is_zero()).then_some(stop_timeout),
        ready_timeout,
        probation,
        max_generations: random.random_range(2..9),
        check: random.random(),
        health: random.random(),
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a test walks is a setting of the test run")]
fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
