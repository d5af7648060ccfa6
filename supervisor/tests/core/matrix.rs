//! Every fact about a generation in every state of it, as in the second table of docs/design/lifecycle.md.

use crate::life::{Life, hello, settings};
use protocol::message::{FromChild, Generation, Hello, Stats, VersionRange};
use supervisor::core::{Action, Event, ExitStatus, Note, SpawnError};

/// A life in which a generation is in the state of that name; the generation is the number.
fn states() -> Vec<(&'static str, u32, Life)> {
    let mut spawning = Life::serving(settings());
    spawning.upgrade();
    let mut greeting = Life::serving(settings());
    greeting.upgrade();
    greeting.spawned(2);
    let mut adopting = Life::serving(settings());
    adopting.upgrade();
    adopting.spawned(2);
    adopting.says(2, FromChild::Hello(hello()));
    let mut adopted = Life::serving(settings());
    adopted.upgrade();
    adopted.adopt(2);
    let mut ready = Life::serving(settings());
    ready.upgrade();
    ready.adopt(2);
    ready.says(2, FromChild::Ready);
    let mut ending = Life::on_probation(settings()).0;
    ending.rollback();
    ending.steered();
    vec![
        ("spawning", 2, spawning),
        ("greeting", 2, greeting),
        ("adopting", 2, adopting),
        ("adopted", 2, adopted),
        ("ready", 2, ready),
        ("probation", 2, Life::on_probation(settings()).0),
        ("active", 1, Life::serving(settings())),
        ("standby", 1, Life::on_probation(settings()).0),
        ("draining", 1, Life::with_generations(settings(), 2)),
        ("ending", 2, ending),
    ]
}

fn facts(generation: u32) -> Vec<(&'static str, Event)> {
    let generation = Generation(generation);
    let says = |message| Event::Message { generation, message };
    vec![
        ("Spawned", Event::Spawned { generation, pid: 7 }),
        ("SpawnFailed", Event::SpawnFailed { generation, error: SpawnError::NotFound("no program".to_owned()) }),
        ("hello", says(FromChild::Hello(hello()))),
        (
            "hello of another version",
            says(FromChild::Hello(Hello { protocol: VersionRange { min: 9, max: 9 }, ..hello() })),
        ),
        ("keep", says(FromChild::Keep { name: "certificate".to_owned() })),
        ("Adopted", Event::Adopted { generation }),
        ("AdoptFailed", Event::AdoptFailed { generation, error: "in use".to_owned(), status: 7 }),
        ("ready", says(FromChild::Ready)),
        ("starting", says(FromChild::Starting { more_ms: 60_000 })),
        ("failed", says(FromChild::Failed { error: "no".to_owned() })),
        ("unhealthy", says(FromChild::Unhealthy { reason: "ill".to_owned() })),
        ("stats", says(FromChild::Stats(Stats::default()))),
        ("unsupported", says(FromChild::Unsupported { message: "drain".to_owned() })),
        ("stale ack", says(FromChild::Ack { seq: 0 })),
        ("Garbage", Event::Garbage { generation, error: "not JSON".to_owned() }),
        ("ChannelLost", Event::ChannelLost { generation, error: "closed".to_owned() }),
        ("Exited 0", Event::Exited { generation, status: ExitStatus::Code(0) }),
        ("Exited 1", Event::Exited { generation, status: ExitStatus::Code(1) }),
        ("Steered", Event::Steered { active: generation }),
        ("SteerFailed", Event::SteerFailed { active: generation, error: "no memory".to_owned() }),
        ("Probed", Event::Probed { generation, result: Err("503".to_owned()) }),
    ]
}

/// One line: the orders, and whether something is said about it.
fn cell(life: &Life) -> String {
    let mut words = life.orders();
    words.extend(life.heirs());
    for action in &life.out {
        match action {
            Action::Note(Note::Warn(_)) => words.push("warn".to_owned()),
            Action::Note(Note::Info(_)) => words.push("info".to_owned()),
            _ => {}
        }
    }
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

#[test]
fn every_fact_in_every_state_is_decided() {
    let mut table = String::new();
    for (fact, _) in facts(0) {
        table.push_str(&format!("{fact}\n"));
        for (state, generation, mut life) in states() {
            let event = facts(generation).into_iter().find(|(name, _)| *name == fact).unwrap().1;
            life.feed_unwatched(event);
            table.push_str(&format!("  {state}: {}\n", cell(&life)));
        }
    }
    assert!(table == include_str!("matrix.txt"), "this is not what matrix.txt says:\n{table}");
}
