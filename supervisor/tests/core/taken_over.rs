//! What another process makes of each phase, and what the driver reads off the lifecycle for the sake of that process.

use crate::crash::fail_respawn;
use crate::life::{Life, hello, secs, settings};
use crate::resume::{feed, killed, resumed, roles, serves, spawned, state};
use protocol::message::{FromChild, Generation, Hello, ToChild};
use supervisor::core::snapshot::{PhaseView, StateView};
use supervisor::core::{
    Action, Core, Event, ExitStatus, Kill, Part, STOP_TIMEOUT, Settings, SpawnError, Survivor, Time,
};

/// Acknowledges every role that was told.
fn acknowledge(core: &mut Core, now: Time, out: &[Action]) -> Vec<Action> {
    let seq = |action: &Action| match action {
        Action::Send { generation, message: ToChild::Activate { seq } | ToChild::Standby { seq } } => {
            Some((*generation, *seq))
        }
        _ => None,
    };
    let told: Vec<_> = out.iter().filter_map(seq).collect();
    let ack = |(generation, seq)| {
        let message = FromChild::Ack { seq };
        feed(core, now, Event::Message { generation, message })
    };
    told.into_iter().flat_map(ack).collect()
}

fn told_alone(out: &[Action]) -> bool {
    out.iter().any(|action| matches!(action, Action::Send { message: ToChild::Alone, .. }))
}

#[test]
fn the_only_one_is_told_so_again_and_none_of_several() {
    for (count, alone) in [(1, true), (2, false)] {
        let life = Life::with_generations(settings(), count);
        let (_, out) = resumed(&life.core, settings(), life.now, false);
        assert_eq!(told_alone(&out), alone, "{count}");
    }
}

#[test]
fn udp_gro_stays_as_it_was_also_where_no_more_is_known() {
    let now = Time::since_epoch(secs(5));
    let active = Survivor { generation: Generation(1), pid: Some(7), part: Part::Active };
    for gro in [true, false] {
        let mut core = Core::degraded(settings(), 1, now, 2, gro, &[active], &[]);
        let out = feed(&mut core, now, Event::Resume { upgrade: false });
        assert!(out.contains(&Action::Gro { on: gro }), "{out:?}");
    }
}

#[test]
fn where_nobody_is_left_a_first_one_starts_and_where_somebody_drains_a_service_is_down() {
    let now = Time::since_epoch(secs(5));
    let draining = Survivor { generation: Generation(1), pid: Some(7), part: Part::Draining };
    for (survivors, served) in [(&[][..], false), (&[draining], true)] {
        let mut core = Core::degraded(settings(), 1, now, 2, true, survivors, &[]);
        let out = feed(&mut core, now, Event::Resume { upgrade: false });
        assert_eq!(serves(&out), served);
        assert_eq!(core.snapshot(now).phase == PhaseView::Starting, !served);
    }
}

/// Somebody leaves before anything has ever served: the next one begins from the start.
#[test]
fn a_service_that_never_served_is_begun_anew() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.spawned(1);
    life.feed(Event::Leave { stored: true });
    assert!(life.core.is_leaving());
    life.exits(1, ExitStatus::Signal(15));
    assert!(life.exit_status().is_some());
    let (core, out) = resumed(&life.core, settings(), life.now, false);
    assert_eq!((spawned(&out), serves(&out)), (Some(2), false));
    assert_eq!(core.snapshot(life.now).phase, PhaseView::Starting);
}

#[test]
fn after_a_leave_the_active_one_is_the_active_one() {
    let mut life = Life::with_generations(settings(), 3);
    life.feed(Event::Leave { stored: true });
    let (core, _) = resumed(&life.core, settings(), life.now, false);
    assert_eq!(core.snapshot(life.now).active, Some(Generation(3)));
}

#[test]
fn a_stand_in_is_told_to_stand_in_again() {
    let mut life = Life::with_generations(settings(), 2);
    life.crashes(2);
    for generation in 3..6 {
        fail_respawn(&mut life, generation);
    }
    assert_eq!(life.state(1), Some(StateView::Active));
    let (_, out) = resumed(&life.core, settings(), life.now, false);
    assert_eq!(roles(&out), [(1, "undrain")]);
}

#[test]
fn down_begins_its_attempt_again() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    life.spawned(2);
    let (_, out) = resumed(&life.core, settings(), life.now, false);
    assert_eq!((killed(&out), spawned(&out)), (vec![(2, Kill::Term)], Some(3)));
}

/// It can't be told that it is active.
#[test]
fn a_ready_one_that_can_be_told_nothing_is_ended() {
    let mut life = Life::serving(settings());
    life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Ready);
    life.loses_channel(2);
    let (_, out) = resumed(&life.core, settings(), life.now, false);
    assert_eq!(killed(&out), [(2, Kill::Term)]);
}

/// Whoever started the next supervisor waits for its word, and the old one serves all the time.
#[test]
fn with_an_upgrade_in_flight_that_was_not_asked_for_again_the_service_is_announced_at_once() {
    let (life, _) = Life::on_probation(settings());
    assert!(serves(&resumed(&life.core, settings(), life.now, false).1));
    assert!(!serves(&resumed(&life.core, settings(), life.now, true).1), "its outcome is what is waited for");
}

/// The next supervisor's flags say whether there are probes.
#[test]
fn a_probation_has_the_probes_of_the_new_settings() {
    let with = Settings { health: true, ..settings() };
    let (life, _) = Life::on_probation(settings());
    let (mut core, out) = resumed(&life.core, with.clone(), life.now, false);
    let out = acknowledge(&mut core, life.now, &out);
    assert!(out.contains(&Action::Probe { generation: Generation(2) }), "{out:?}");

    let (life, _) = Life::on_probation(with);
    let (mut core, out) = resumed(&life.core, settings(), life.now, false);
    let out = [acknowledge(&mut core, life.now, &out), feed(&mut core, life.now.after(secs(10)), Event::Tick)].concat();
    assert!(!out.iter().any(|action| matches!(action, Action::Probe { .. })), "{out:?}");
    assert_eq!(state(&core, life.now, 1), Some(StateView::Draining), "committed without a probe: {out:?}");
}

#[test]
fn what_the_driver_asks_of_each_phase() {
    let says = |life: &Life| {
        let core = &life.core;
        [core.is_settled(), core.is_leaving(), core.is_stopping(), core.has_ended()]
    };
    let serving = Life::serving(settings());
    assert_eq!(says(&serving), [true, false, false, false], "serving");
    assert_eq!(says(&Life::on_probation(settings()).0), [false; 4], "upgrading");
    let mut down = Life::serving(settings());
    down.crashes(1);
    assert_eq!(says(&down), [false; 4], "a respawn is running");
    down.feed(Event::SpawnFailed { generation: Generation(2), error: SpawnError::NotFound("gone".to_owned()) });
    assert_eq!(says(&down), [true, false, false, false], "a respawn waits");

    let mut stopping = Life::serving(settings());
    stopping.feed(Event::Stop);
    assert_eq!(says(&stopping), [false, false, true, false], "stopping");
    stopping.exits(1, ExitStatus::Code(0));
    assert_eq!(says(&stopping), [false, false, true, true], "stopped");

    let mut leaving = Life::serving(settings());
    leaving.upgrade();
    leaving.spawned(2);
    leaving.feed(Event::Leave { stored: true });
    assert_eq!(says(&leaving), [false, true, false, false], "leaving");
    leaving.exits(2, ExitStatus::Signal(15));
    assert!(leaving.exit_status().is_some());
    assert_eq!(says(&leaving), [false, true, false, false], "left");
}

#[test]
fn the_longest_drain_is_that_of_the_generation_that_takes_longest_by_itself() {
    assert_eq!(Life::new(settings()).core.longest_own_drain(), STOP_TIMEOUT);
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.spawned(1);
    life.says(1, FromChild::Hello(Hello { drain_timeout_ms: Some(70_000), ..hello() }));
    assert_eq!(life.core.longest_own_drain(), secs(70));
}

/// Who waited asked a process that is gone.
#[test]
fn nobody_is_answered_by_another_process() {
    let (life, _) = Life::on_probation(settings());
    let (mut core, out) = resumed(&life.core, settings(), life.now, false);
    acknowledge(&mut core, life.now, &out);
    let out = feed(&mut core, life.now.after(secs(10)), Event::Tick);
    assert_eq!(roles(&out), [(1, "drain")]);
    assert!(!out.iter().any(|action| matches!(action, Action::Reply { .. })), "{out:?}");
}

/// The next number is above all that were used, by the living and by the dead.
#[test]
fn a_core_whose_next_number_is_taken_is_refused() {
    let with_next = |life: &Life, from: &str, next: &str| {
        let text = serde_json::to_string(&life.core).expect("JSON");
        assert!(text.contains(from), "{text}");
        let saved: Core = serde_json::from_str(&text.replace(from, next)).expect("a core");
        Core::restored(saved, settings())
    };
    let serving = Life::serving(settings());
    assert!(with_next(&serving, r#""next":2,"#, r#""next":2,"#).is_some());
    assert!(with_next(&serving, r#""next":2,"#, r#""next":1,"#).is_none());
    let mut mourning = Life::serving(settings());
    mourning.upgrade();
    mourning.adopt(2);
    mourning.crashes(2);
    assert_eq!(mourning.core.mourned(), [Generation(2)]);
    assert!(with_next(&mourning, r#""next":3,"#, r#""next":3,"#).is_some());
    assert!(with_next(&mourning, r#""next":3,"#, r#""next":2,"#).is_none());
}
