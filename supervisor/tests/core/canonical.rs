//! What `Core::canonical` leaves of a lifecycle goes on as the lifecycle itself does: so the model checker, which keeps
//! one state for all that have the same, leaves nothing out.

use crate::life::settings;
use crate::walk::{Pace, next, random_settings};
use crate::world::{Move, World};
use protocol::message::{Generation, ToChild};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;
use supervisor::core::{Action, Core, ExitStatus, Note, Settings};

/// How many lives are compared.
const LIVES: u64 = 300;

fn canonical(world: &World) -> Core {
    world.core.canonical(world.now).core
}

/// The same move of the twin, whose generations have other numbers.
fn renamed(made: Move, names: &BTreeMap<Generation, Generation>) -> Move {
    let name = |generation: Generation| names.get(&generation).copied().unwrap_or(generation);
    match made {
        Move::Spawned(generation) => Move::Spawned(name(generation)),
        Move::SpawnFailed(generation) => Move::SpawnFailed(name(generation)),
        Move::Adopted(generation) => Move::Adopted(name(generation)),
        Move::AdoptFailed(generation) => Move::AdoptFailed(name(generation)),
        Move::Exits(generation, status) => Move::Exits(name(generation), status),
        Move::ChannelLost(generation) => Move::ChannelLost(name(generation)),
        Move::Garbage(generation) => Move::Garbage(name(generation)),
        Move::Ignores(generation) => Move::Ignores(name(generation)),
        Move::Says(generation, saying) => Move::Says(name(generation), saying),
        Move::Start
        | Move::Upgrade { .. }
        | Move::Rollback
        | Move::Stop
        | Move::Reload
        | Move::Leave { .. }
        | Move::Checked { .. }
        | Move::Steered
        | Move::SteerFailed
        | Move::Probed { .. }
        | Move::Tick
        | Move::Wait => made,
    }
}

/// Whether it is more than numbers, of which a canonical one knows none, and the word that there is something new.
const fn is_decision(order: &Action) -> bool {
    !matches!(order, Action::Send { message: ToChild::Counters { .. }, .. } | Action::Note(Note::Changed))
}

/// Those that have appeared since, by their order, which is the same for both.
fn learn(names: &mut BTreeMap<Generation, Generation>, world: &World, twin: &World) {
    let new: Vec<_> = world.watch.processes.keys().filter(|one| !names.contains_key(one)).copied().collect();
    let known: Vec<_> = names.values().copied().collect();
    let of_twin: Vec<_> = twin.watch.processes.keys().filter(|one| !known.contains(one)).copied().collect();
    assert_eq!(new.len(), of_twin.len(), "{new:?} and {of_twin:?}");
    names.extend(new.into_iter().zip(of_twin));
}

/// Lives until some moment, and then a second time beside it from what `canonical` leaves of that moment.
fn live_twice(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::new(random_settings(&mut random), 0);
    let pace = Pace { faults: 20, time: 10, spawns_fail: false };
    let (alone, together) = (random.random_range(1..120), 150);
    for step in 0..alone {
        let made = if step == 0 { Move::Start } else { next(&world, &pace, &mut random) };
        let before = world.clone();
        world.make(made);
        // The jitter of a canonical one begins anew: with the same seed the other is still at its beginning, too.
        if !format!("{:?}", world.core).contains("jitter: Jitter(0)") {
            world = before;
            break;
        }
    }
    // Who answers for those that are dead by then is the one thing that is left out; it decides nothing.
    world.forget_the_dead();
    let names = world.core.canonical(world.now).generations;
    let mut twin = world.canonical();
    let mut names: BTreeMap<_, _> =
        names.into_iter().filter(|(old, _)| world.watch.processes.contains_key(old)).collect();
    assert_eq!(canonical(&world), canonical(&twin), "seed {seed}: there is more to leave out");
    for step in 0..together {
        if world.watch.exit.is_some() {
            return;
        }
        let made = next(&world, &pace, &mut random);
        let made_by_twin = renamed(made, &names);
        let orders = [world.make(made), twin.make(made_by_twin)];
        let violations = [&world.violation, &twin.violation];
        assert_eq!(violations, [&None, &None], "seed {seed}, step {step}: {made:?}");
        let counts = orders.each_ref().map(|orders| orders.iter().filter(|order| is_decision(order)).count());
        assert_eq!(counts[0], counts[1], "seed {seed}, step {step}: {made:?}: {orders:?}");
        learn(&mut names, &world, &twin);
        assert_eq!(canonical(&world), canonical(&twin), "seed {seed}, step {step}: after {made:?}");
    }
}

#[test]
fn a_canonical_lifecycle_goes_on_as_the_one_that_it_stands_for() {
    (0..LIVES).for_each(live_twice);
}

/// A world in which one generation is active, after so many upgrades and so much time.
fn after(upgrades: u32, idle: Duration) -> World {
    let mut world = World::new(Settings { probation: Duration::ZERO, ..settings() }, 0);
    world.make(Move::Start);
    let upgrade = Move::Upgrade { waits: true, evict_oldest: false };
    for past in 0..=upgrades {
        if past > 0 {
            world.make(upgrade);
        }
        while let Some(made) = world.duties().into_iter().chain(world.progress()).next() {
            world.make(made);
        }
        if past > 0 {
            world.make(Move::Exits(Generation(past), ExitStatus::Code(0)));
        }
    }
    world.now = world.now.after(idle);
    assert_eq!(world.violation, None);
    world
}

/// Otherwise the model would never end.
#[test]
fn nothing_of_the_past_is_left_in_a_canonical_lifecycle() {
    let first = after(0, Duration::ZERO);
    for (upgrades, idle) in [(1, Duration::ZERO), (3, Duration::from_secs(3_600))] {
        assert_eq!(canonical(&first), canonical(&after(upgrades, idle)));
    }
}
