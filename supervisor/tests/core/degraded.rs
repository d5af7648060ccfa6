//! Going on with no more than what any version of the supervisor understands of a lifecycle.

use crate::heirs::RETENTION;
use crate::life::{Life, secs, settings};
use crate::resume::{feed, killed, roles, serves, spawned, state, steering};
use protocol::message::Generation;
use supervisor::core::snapshot::StateView;
use supervisor::core::{Action, Core, Event, ExitStatus, Kill, Part, Survivor, Time};

/// What a supervisor of another version can rely on.
#[test]
fn of_a_state_that_is_not_understood_the_active_one_stays_and_the_others_drain() {
    let survivor =
        |generation, part| Survivor { generation: Generation(generation), pid: Some(100 + generation), part };
    let parts = [Part::Draining, Part::Standby, Part::Active, Part::Starting, Part::Ending];
    let survivors: Vec<_> = (3..).zip(parts).map(|(generation, part)| survivor(generation, part)).collect();
    let now = Time::since_epoch(secs(5));
    let mut core = Core::degraded(settings(), 1, now, 2, true, &survivors, &[]);
    let out = feed(&mut core, now, Event::Resume { upgrade: false });
    assert_eq!(roles(&out), [(3, "drain"), (4, "drain"), (5, "activate")]);
    assert_eq!(killed(&out), [(6, Kill::Term), (7, Kill::Term)]);
    assert!(serves(&out));
    let out = feed(&mut core, now, Event::Upgrade { waiter: None, evict_oldest: false });
    assert!(out.is_empty() || spawned(&out).is_none_or(|number| number == 8), "no number is used twice: {out:?}");
}

#[test]
fn without_an_active_one_the_youngest_standby_takes_over_else_a_respawn() {
    let now = Time::since_epoch(secs(5));
    let survivor = |generation, part| Survivor { generation: Generation(generation), pid: Some(1), part };
    let mut core =
        Core::degraded(settings(), 1, now, 9, true, &[survivor(1, Part::Standby), survivor(2, Part::Standby)], &[]);
    assert_eq!(roles(&feed(&mut core, now, Event::Resume { upgrade: false })), [(1, "drain"), (2, "activate")]);

    let dead = Survivor { generation: Generation(2), pid: None, part: Part::Dead };
    let mut core = Core::degraded(settings(), 1, now, 9, true, &[survivor(1, Part::Draining), dead], &[]);
    let out = feed(&mut core, now, Event::Resume { upgrade: false });
    assert_eq!(spawned(&out), Some(9));

    let mut core = Core::degraded(settings(), 1, now, 9, true, &[], &[]);
    let out = feed(&mut core, now, Event::Resume { upgrade: false });
    assert_eq!(spawned(&out), Some(9), "as a first one");
}

/// There are no sockets of a dead one that could be held, and still better one that drains than nobody.
#[test]
fn a_draining_one_stands_in_where_no_dead_one_is_known() {
    let now = Time::since_epoch(secs(5));
    let draining = Survivor { generation: Generation(1), pid: Some(1), part: Part::Draining };
    let mut core = Core::degraded(settings(), 1, now, 2, true, &[draining], &[]);
    let mut out = feed(&mut core, now, Event::Resume { upgrade: false });
    let mut now = now;
    for generation in 2..5 {
        while spawned(&out) != Some(generation) {
            now = core.next_deadline().expect("the next attempt");
            out = feed(&mut core, now, Event::Tick);
        }
        assert_eq!(state(&core, now, 1), Some(StateView::Draining), "before generation {generation}");
        let generation = Generation(generation);
        feed(&mut core, now, Event::Spawned { generation, pid: 7 });
        out = feed(&mut core, now, Event::Exited { generation, status: ExitStatus::Code(1) });
    }
    assert_eq!(roles(&out), [(1, "undrain")]);
    assert_eq!(steering(&out).map(|steering| steering.active), Some(Generation(1)));
    assert_eq!(state(&core, now, 1), Some(StateView::Active));
}

#[test]
fn the_dead_of_a_state_of_another_version_are_remembered_too() {
    let active = Survivor { generation: Generation(3), pid: Some(7), part: Part::Active };
    let now = Time::since_epoch(secs(5));
    let gone = [Generation(1), Generation(2), Generation(3)];
    let mut core = Core::degraded(settings(), 1, now, 4, true, &[active], &gone);
    let mut out = Vec::new();
    core.handle(now, Event::Resume { upgrade: false }, &mut out);
    let heir = Action::Heir { generation: Generation(3), dead: vec![Generation(1), Generation(2)] };
    assert!(out.contains(&heir), "the live one is not among them: {out:?}");
}

/// Its `hello` was said to a supervisor whose core this one can't read.
#[test]
fn a_generation_that_came_with_a_state_of_another_version_is_remembered_and_forgotten_like_any_other() {
    let generation = Generation(1);
    for (part, status, remembered) in [
        (Part::Active, ExitStatus::Signal(9), true),
        (Part::Standby, ExitStatus::Signal(9), true),
        (Part::Draining, ExitStatus::Signal(9), true),
        (Part::Draining, ExitStatus::Code(0), false),
        (Part::Starting, ExitStatus::Signal(15), true),
        (Part::Ending, ExitStatus::Signal(9), true),
    ] {
        let mut survivors = vec![Survivor { generation, pid: Some(7), part }];
        if part != Part::Active {
            survivors.push(Survivor { generation: Generation(2), pid: Some(8), part: Part::Active });
        }
        let mut life = Life::new(settings());
        life.now = Time::since_epoch(secs(5));
        life.core = Core::degraded(settings(), 1, life.now, 3, true, &survivors, &[]);
        life.feed_unwatched(Event::Resume { upgrade: false });
        life.feed_unwatched(Event::Exited { generation, status });
        if !remembered {
            assert_eq!(life.heirs(), ["forget 1"], "{part:?}");
            continue;
        }
        assert_eq!(life.core.mourned(), [generation], "{part:?}");
        if part != Part::Active {
            assert_eq!(life.heirs(), ["heir 2 of 1"], "{part:?}");
        }
        life.now = life.now.after(RETENTION);
        life.feed_unwatched(Event::Tick);
        assert!(life.heirs().contains(&"forget 1".to_owned()), "{part:?}");
    }
}
