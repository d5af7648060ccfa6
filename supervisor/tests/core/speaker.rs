//! Who speaks for the node, and what it is told about the others.

use crate::life::{Life, secs, settings};
use protocol::message::{FromChild, Stats, ToChild};
use supervisor::core::{ACKNOWLEDGE, Action, Core, Event, ExitStatus};

fn stats(sessions: u64, handshakes: u64) -> FromChild {
    FromChild::Stats(Stats { sessions, handshakes, ..Stats::default() })
}

/// Its answer to "who, and what of the others" after each step of an upgrade. Nothing is said twice by two.
#[test]
fn the_active_one_speaks_from_its_commit_on() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.bring_up(1);
    assert_eq!(life.speaks(), Some((1, vec![(0, 0)])), "the first one speaks at once");
    life.upgrade();
    life.bring_up(2);
    assert_eq!(life.speaks(), None, "the standby goes on");
    assert_eq!(life.is_asked(), Some((2, vec![(0, 0), (0, 0)])), "and the new one is asked");
    life.says(2, stats(3, 4));
    assert_eq!(life.speaks(), Some((1, vec![(3, 4), (0, 0)])), "with the new one's sessions");
    life.says(1, stats(7, 9));
    assert_eq!(life.speaks(), None, "its own it knows");
    assert_eq!(life.is_asked(), Some((2, vec![(7, 9), (0, 0)])), "the other one does not");
    life.acknowledge(1);
    life.acknowledge(2);
    life.pass(secs(2));
    assert_eq!(life.speaks(), Some((2, vec![(7, 9), (0, 0)])), "the commit");
    let told = |sought: fn(&ToChild) -> bool| {
        life.out.iter().position(|action| matches!(action, Action::Send { message, .. } if sought(message)))
    };
    let drain = told(|message| matches!(message, ToChild::Drain { .. }));
    assert!(drain.is_some() && drain < told(|message| matches!(message, ToChild::Counters { .. })), "{:?}", life.out);
    life.acknowledge(1);
    life.says(1, stats(1, 9));
    assert_eq!(life.speaks(), Some((2, vec![(1, 9), (0, 0)])));
    life.exits(1, ExitStatus::Code(0));
    assert_eq!(life.speaks(), Some((2, vec![(0, 9)])), "its handshakes were handshakes");
}

/// What the last message with counters to that generation says of whether others still answer.
fn settled(life: &Life, to: u32) -> Option<bool> {
    life.out.iter().rev().find_map(|action| match action {
        Action::Send { generation, message: ToChild::Counters { settled, .. } } if generation.0 == to => Some(*settled),
        _ => None,
    })
}

/// Guards totals that must not go down: the new one may answer when its predecessor has said that it answers no more, which it
/// says after its last counters.
#[test]
fn the_new_one_is_told_when_its_predecessor_answers_no_more() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.bring_up(1);
    assert_eq!(settled(&life, 1), Some(true), "there is nobody else");
    life.upgrade();
    life.bring_up(2);
    assert_eq!(settled(&life, 2), Some(false), "the standby is not acknowledged");
    life.says(1, stats(7, 9));
    assert_eq!(settled(&life, 2), Some(false));
    assert_eq!(settled(&life, 1), None);
    life.acknowledge(1);
    assert_eq!(settled(&life, 2), Some(true));
    assert_eq!(life.is_asked(), Some((2, vec![(7, 9), (0, 0)])), "with all that it has shown");
    life.says(2, stats(1, 1));
    assert_eq!(settled(&life, 1), Some(false), "to the standby, the new one is who answers");
    life.rollback();
    life.steered();
    life.exits(2, ExitStatus::Signal(15));
    assert_eq!(settled(&life, 1), Some(true), "until it has gone");
}

/// Guards against a predecessor that hangs: it is waited for as long as for any acknowledgement.
#[test]
fn a_predecessor_that_does_not_acknowledge_is_not_waited_for() {
    let mut life = Life::on_probation(settings()).0;
    life.says(1, stats(1, 1));
    assert_eq!(settled(&life, 2), Some(false));
    life.pass(ACKNOWLEDGE);
    assert_eq!(settled(&life, 2), Some(true));
}

/// A rollback moves nothing: the old one spoke all the time.
#[test]
fn after_a_rollback_the_old_one_speaks_on() {
    let mut life = Life::on_probation(settings()).0;
    life.says(2, stats(3, 4));
    life.rollback();
    assert_eq!(life.speaks(), None);
    life.steered();
    life.exits(2, ExitStatus::Signal(15));
    assert_eq!(life.speaks(), Some((1, vec![(0, 4)])));
}

/// A crash takes the one that spoke; the successor goes on with what it had counted.
#[test]
fn after_a_crash_the_successor_speaks_and_no_total_goes_down() {
    let mut life = Life::with_generations(settings(), 2);
    life.says(1, stats(1, 10));
    life.says(2, stats(5, 20));
    life.exits(2, ExitStatus::Signal(11));
    life.bring_up(3);
    assert_eq!(life.speaks(), Some((3, vec![(1, 10), (0, 20)])));
}

/// A supervisor that goes on tells again: it can't know whether the message before its end arrived.
#[test]
fn the_next_supervisor_tells_again() {
    let mut life = Life::with_generations(settings(), 2);
    life.says(1, stats(1, 10));
    let mut core = Core::restored(life.core.clone(), settings()).expect("sound");
    let mut out = Vec::new();
    core.handle(life.now, Event::Resume { upgrade: false }, &mut out);
    life.out = out;
    assert_eq!(life.speaks(), Some((2, vec![(1, 10), (0, 0)])));
}

/// Nothing has changed for anybody who knows the totals.
#[test]
fn the_end_of_one_that_never_counted_anything_is_told_to_nobody() {
    let mut life = Life::with_generations(settings(), 2);
    life.upgrade();
    life.bring_up(3);
    life.exits(1, ExitStatus::Code(0));
    let told =
        life.out.iter().filter(|action| matches!(action, Action::Send { message: ToChild::Counters { .. }, .. }));
    assert_eq!(told.count(), 0, "{:?}", life.out);
}
