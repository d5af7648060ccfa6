//! Going on with the lifecycle of an earlier process: what is told again, begun anew, and announced. The core goes through
//! JSON each time, as it does between processes.

use crate::life::{Life, secs, settings};
use protocol::message::{FromChild, Generation, Stats, ToChild};
use std::time::Duration;
use supervisor::core::snapshot::{PhaseView, StageView, StateView};
use supervisor::core::{
    Action, Core, Event, ExitStatus, Kill, Note, Part, STATS_TIMEOUT, Settings, Steering, Survivor, Time,
};

/// What another process makes of this core, and what follows from that.
pub(crate) fn resumed(core: &Core, settings: Settings, now: Time, upgrade: bool) -> (Core, Vec<Action>) {
    let text = serde_json::to_string(core).expect("JSON");
    let saved: Core = serde_json::from_str(&text).expect("the same");
    assert_eq!(&saved, core, "nothing is lost on the way");
    let mut core = Core::restored(saved, settings).expect("sound");
    let out = feed(&mut core, now, Event::Resume { upgrade });
    (core, out)
}

pub(crate) fn feed(core: &mut Core, now: Time, event: Event) -> Vec<Action> {
    let mut out = Vec::new();
    core.handle(now, event, &mut out);
    out
}

pub(crate) fn state(core: &Core, now: Time, generation: u32) -> Option<StateView> {
    let generations = core.snapshot(now).generations;
    generations.iter().find(|view| view.generation == Generation(generation)).map(|view| view.state)
}

/// The roles that are told, in short.
pub(crate) fn roles(out: &[Action]) -> Vec<(u32, &'static str)> {
    let role = |action: &Action| match action {
        Action::Send { generation, message } => match message {
            ToChild::Activate { .. } => Some((generation.0, "activate")),
            ToChild::Standby { .. } => Some((generation.0, "standby")),
            ToChild::Drain { .. } => Some((generation.0, "drain")),
            ToChild::Undrain { .. } => Some((generation.0, "undrain")),
            _ => None,
        },
        _ => None,
    };
    out.iter().filter_map(role).collect()
}

pub(crate) fn spawned(out: &[Action]) -> Option<u32> {
    out.iter().find_map(|action| match action {
        Action::Spawn { generation } => Some(generation.0),
        _ => None,
    })
}

pub(crate) fn steering(out: &[Action]) -> Option<&Steering> {
    out.iter().find_map(|action| match action {
        Action::Steer(steering) => Some(steering),
        _ => None,
    })
}

pub(crate) fn serves(out: &[Action]) -> bool {
    out.contains(&Action::Note(Note::Serving))
}

pub(crate) fn killed(out: &[Action]) -> Vec<(u32, Kill)> {
    let kill = |action: &Action| match action {
        Action::Kill { generation, how } => Some((generation.0, *how)),
        _ => None,
    };
    out.iter().filter_map(kill).collect()
}

#[test]
fn every_live_generation_is_told_its_role_again_and_steering_is_ordered() {
    let life = Life::with_generations(settings(), 3);
    let (core, out) = resumed(&life.core, settings(), life.now, false);
    assert_eq!(roles(&out), [(1, "drain"), (2, "drain"), (3, "activate")]);
    let steering = steering(&out).expect("ordered");
    assert_eq!((steering.active, steering.live.len()), (Generation(3), 3));
    assert!(serves(&out));
    assert_eq!(spawned(&out), None);
    assert_eq!(core.snapshot(life.now).phase, PhaseView::Serving);
}

/// The deadline is a moment on a clock that both processes read.
#[test]
fn a_drain_goes_on_with_the_time_that_it_had_left() {
    let life = Life::with_generations(settings(), 2);
    let later = life.now.after(secs(100));
    let left = life.core.snapshot(later).generations[0].left.expect("it drains");
    let (core, out) = resumed(&life.core, settings(), later, false);
    assert_eq!(core.snapshot(later).generations[0].left, Some(left));
    let told = out.iter().find_map(|action| match action {
        Action::Send { message: ToChild::Drain { timeout_ms, .. }, .. } => Some(*timeout_ms),
        _ => None,
    });
    assert_eq!(told.map(u128::from), Some(left.as_millis()));
}

/// A second SIGTERM would end its sessions at once.
#[test]
fn a_drain_that_was_asked_by_signal_is_not_asked_again() {
    let mut life = Life::with_generations(settings(), 2);
    life.upgrade();
    life.bring_up(3);
    life.acknowledge(3);
    life.loses_channel(2);
    life.pass(secs(2));
    assert_eq!(killed(&life.out), [(2, Kill::Term)]);
    let (_, out) = resumed(&life.core, settings(), life.now, false);
    assert!(killed(&out).is_empty(), "{out:?}");
    assert_eq!(roles(&out), [(1, "drain"), (3, "activate")]);
}

#[test]
fn one_that_was_not_ready_is_ended_and_its_upgrade_begun_again() {
    let mut life = Life::serving(settings());
    life.upgrade();
    life.adopt(2);
    let (core, out) = resumed(&life.core, settings(), life.now, false);
    assert_eq!(killed(&out), [(2, Kill::Term)]);
    assert_eq!(spawned(&out), Some(3));
    assert_eq!(state(&core, life.now, 2), Some(StateView::Ending));
    assert_eq!(state(&core, life.now, 1), Some(StateView::Active));
}

/// Killed between the order to start a process and its start: there is none, or nobody will ever know its number.
#[test]
fn one_that_was_ordered_and_not_started_is_forgotten() {
    let mut life = Life::serving(settings());
    life.upgrade();
    let (core, out) = resumed(&life.core, settings(), life.now, false);
    assert!(out.contains(&Action::Retire { generation: Generation(2) }));
    assert_eq!(state(&core, life.now, 2), None);
    assert_eq!(spawned(&out), Some(3));
}

#[test]
fn a_first_generation_that_was_not_ready_is_started_again() {
    let mut life = Life::new(settings());
    life.feed(Event::Start);
    life.adopt(1);
    let (core, out) = resumed(&life.core, settings(), life.now, true);
    assert_eq!((killed(&out), spawned(&out)), (vec![(1, Kill::Term)], Some(2)));
    assert!(!serves(&out));
    assert_eq!(core.snapshot(life.now).phase, PhaseView::Starting);
}

#[test]
fn a_probation_goes_on_and_its_probes_begin_anew() {
    let settings = Settings { health: true, ..settings() };
    let (mut life, _) = Life::on_probation(settings.clone());
    life.acknowledge(1);
    life.feed(Event::Probed { generation: Generation(2), result: Err("503".to_owned()) });
    let later = life.now.after(secs(60));
    let (mut core, mut out) = resumed(&life.core, settings, later, false);
    assert_eq!(roles(&out), [(1, "standby"), (2, "activate")]);
    let stage = core.snapshot(later).upgrade.map(|upgrade| upgrade.stage);
    assert_eq!(stage, Some(StageView::Probation), "it has another chance");
    for generation in [1, 2] {
        let seq = out.iter().find_map(|action| match action {
            Action::Send { generation: to, message: ToChild::Activate { seq } | ToChild::Standby { seq } }
                if to.0 == generation =>
            {
                Some(*seq)
            }
            _ => None,
        });
        let message = FromChild::Ack { seq: seq.expect("told") };
        out.extend(feed(&mut core, later, Event::Message { generation: Generation(generation), message }));
    }
    assert!(out.contains(&Action::Probe { generation: Generation(2) }));
}

#[test]
fn down_goes_on_with_its_backoff_and_the_dead_ones_sockets() {
    let mut life = Life::serving(settings());
    life.crashes(1);
    life.spawned(2);
    life.crashes(2);
    let (mut core, out) = resumed(&life.core, settings(), life.now, false);
    assert!(serves(&out), "a service manager that starts us anew must not give up on us");
    assert_eq!(spawned(&out), None);
    assert_eq!(steering(&out).map(|steering| steering.active), Some(Generation(1)));
    let due = core.next_deadline().expect("the next attempt");
    assert_eq!(spawned(&feed(&mut core, due, Event::Tick)), Some(3));
}

#[test]
fn a_restart_begins_with_an_upgrade_and_announces_at_its_end() {
    let mut life = Life::with_generations(settings(), 2);
    life.feed(Event::Leave { stored: true });
    assert!(life.exit_status().is_some());
    let (mut core, out) = resumed(&life.core, settings(), life.now, true);
    assert_eq!(spawned(&out), Some(3));
    assert!(!serves(&out));
    let error = supervisor::core::SpawnError::NotFound("gone".to_owned());
    let out = feed(&mut core, life.now, Event::SpawnFailed { generation: Generation(3), error });
    assert!(serves(&out), "the old one serves");
    assert_eq!(state(&core, life.now, 2), Some(StateView::Active));
}

#[test]
fn a_restart_that_can_t_begin_its_upgrade_announces_at_once() {
    let mut life = Life::with_generations(settings(), 4);
    life.feed(Event::Leave { stored: true });
    let (_, out) = resumed(&life.core, settings(), life.now, true);
    assert_eq!(spawned(&out), None);
    assert!(serves(&out));
}

#[test]
fn a_restart_in_probation_finishes_that_first() {
    let (mut life, _) = Life::on_probation(settings());
    life.feed(Event::Leave { stored: true });
    let (mut core, out) = resumed(&life.core, settings(), life.now, true);
    assert_eq!(roles(&out), [(1, "standby"), (2, "activate")]);
    assert_eq!(spawned(&out), None);
    let out = feed(&mut core, life.now.after(secs(2)), Event::Tick);
    assert_eq!((roles(&out), spawned(&out)), (vec![(1, "drain")], Some(3)));
}

#[test]
fn a_stop_goes_on() {
    let mut life = Life::with_generations(settings(), 2);
    life.feed(Event::Stop);
    let (mut core, out) = resumed(&life.core, settings(), life.now, false);
    assert_eq!(roles(&out), [(1, "drain"), (2, "drain")]);
    let notes: Vec<_> =
        out.iter().filter(|action| matches!(action, Action::Note(Note::Serving | Note::Stopping))).collect();
    assert_eq!(notes, [&Action::Note(Note::Serving), &Action::Note(Note::Stopping)]);
    for generation in [1, 2] {
        feed(&mut core, life.now, Event::Exited { generation: Generation(generation), status: ExitStatus::Unknown });
    }
    assert!(core.has_ended());
}

/// Guards the sessions that it got between the switch and the moment in which that would have been written down.
#[test]
fn one_that_may_have_been_steered_to_is_steered_to_and_not_ended() {
    let mut life = Life::serving(settings());
    life.upgrade();
    life.adopt(2);
    life.says(2, FromChild::Ready);
    assert_eq!(life.orders(), ["gro off", "steer 2 of 1 2"]);
    let (mut core, out) = resumed(&life.core, settings(), life.now, false);
    assert!(!out.iter().any(|action| matches!(action, Action::Kill { .. } | Action::Spawn { .. })), "{out:?}");
    feed(&mut core, life.now, Event::Steered { active: Generation(2) });
    assert_eq!(state(&core, life.now, 2), Some(StateView::Active));
    assert_eq!(state(&core, life.now, 1), Some(StateView::Standby));
}

/// The same of the very first, and of a successor after a crash.
#[test]
fn one_that_may_have_been_steered_to_is_the_only_one() {
    let mut first = Life::new(settings());
    first.feed(Event::Start);
    first.adopt(1);
    first.says(1, FromChild::Ready);
    let mut down = Life::serving(settings());
    down.crashes(1);
    down.adopt(2);
    down.says(2, FromChild::Ready);
    for (life, generation) in [(first, 1), (down, 2)] {
        let (mut core, out) = resumed(&life.core, settings(), life.now, false);
        assert!(!out.iter().any(|action| matches!(action, Action::Kill { .. } | Action::Spawn { .. })), "{out:?}");
        feed(&mut core, life.now, Event::Steered { active: Generation(generation) });
        assert_eq!(state(&core, life.now, generation), Some(StateView::Active));
    }
}

/// Generation 2 has the sockets of 1, which died, and was not ready when another supervisor took over after some time.
fn with_a_successor_on_its_way(later: Duration) -> (Core, Time, Vec<Action>) {
    let mut life = Life::serving(settings());
    life.crashes(1);
    life.adopt(2);
    let now = life.now.after(later);
    let (core, out) = resumed(&life.core, settings(), now, false);
    (core, now, out)
}

/// Guards the sessions of a successor that has the sockets of a dead one, which are steered to all the time.
#[test]
fn one_that_has_taken_over_sockets_is_not_ended() {
    let (mut core, now, out) = with_a_successor_on_its_way(secs(0));
    assert!(!out.iter().any(|action| matches!(action, Action::Kill { .. } | Action::Spawn { .. })), "{out:?}");
    assert_eq!(state(&core, now, 2), Some(StateView::Starting));
    feed(&mut core, now, Event::Message { generation: Generation(2), message: FromChild::Ready });
    feed(&mut core, now, Event::Steered { active: Generation(2) });
    assert_eq!(state(&core, now, 2), Some(StateView::Active));
}

/// What it has said was read, and died with who had read it.
#[test]
fn one_that_has_taken_over_sockets_and_reports_sessions_is_ready() {
    for (sessions, handshakes, expected) in
        [(0, 0, StateView::Starting), (1, 0, StateView::Ready), (0, u64::MAX, StateView::Ready)]
    {
        let (mut core, now, _) = with_a_successor_on_its_way(secs(0));
        let message = FromChild::Stats(Stats { sessions, handshakes, ..Stats::default() });
        let out = feed(&mut core, now, Event::Message { generation: Generation(2), message });
        assert_eq!(state(&core, now, 2), Some(expected));
        let steered = steering(&out).is_some_and(|steering| steering.active == Generation(2));
        assert_eq!(steered, expected == StateView::Ready);
    }
    let mut candidate = Life::serving(settings());
    candidate.upgrade();
    candidate.adopt(2);
    candidate.says(2, FromChild::Stats(Stats { sessions: 1, ..Stats::default() }));
    assert_eq!(candidate.state(2), Some(StateView::Starting), "packets come to it after the switch alone");
}

/// Guards against an outage without an end; the time that nobody listened does not count.
#[test]
fn one_that_has_taken_over_sockets_and_hangs_is_followed_by_another() {
    let (mut core, now, out) = with_a_successor_on_its_way(secs(3_600));
    assert_eq!(killed(&out), []);
    let due = now.after(settings().ready_timeout);
    let out = feed(&mut core, due, Event::Tick);
    assert_eq!(killed(&out), [(2, Kill::Group)]);
    let mut out = feed(&mut core, due, Event::Exited { generation: Generation(2), status: ExitStatus::Signal(9) });
    if spawned(&out).is_none() {
        let due = core.next_deadline().expect("the next attempt");
        out = feed(&mut core, due, Event::Tick);
    }
    assert_eq!(spawned(&out), Some(3));
}

#[test]
fn a_silent_child_has_its_time_from_the_restore_on() {
    let mut life = Life::serving(settings());
    life.says(1, FromChild::Stats(Stats::default()));
    let later = life.now.after(secs(3_600));
    let (mut core, _) = resumed(&life.core, settings(), later, false);
    assert_eq!(state(&core, later, 1), Some(StateView::Active));
    let out = feed(&mut core, later.after(STATS_TIMEOUT), Event::Tick);
    assert_eq!(spawned(&out), Some(2), "then it is replaced");
}

#[test]
fn new_settings_count_from_the_restore_on() {
    let life = Life::serving(settings());
    let (mut core, _) = resumed(&life.core, Settings { check: true, ..settings() }, life.now, false);
    let out = feed(&mut core, life.now, Event::Upgrade { waiter: None, evict_oldest: false });
    assert!(out.contains(&Action::Check { generation: Generation(2) }));
}

#[test]
fn a_core_that_contradicts_itself_is_refused() {
    let life = Life::serving(settings());
    let text = serde_json::to_string(&life.core).expect("JSON").replace(r#""active":1"#, r#""active":5"#);
    let saved: Core = serde_json::from_str(&text).expect("a core");
    assert!(Core::restored(saved, settings()).is_none());
}

/// At whatever moment: everything that the core says about itself comes back.
#[test]
fn what_others_see_of_it_is_all_there() {
    let life = Life::with_generations(settings(), 3);
    let parts: Vec<_> = life.core.survivors().iter().map(|survivor| (survivor.generation.0, survivor.part)).collect();
    assert_eq!(parts, [(1, Part::Draining), (2, Part::Draining), (3, Part::Active)]);
    assert_eq!(life.core.next_generation(), 4);
    assert!(life.core.is_settled() && !life.core.is_leaving() && !life.core.is_stopping());
    let mut down = Life::serving(settings());
    down.crashes(1);
    assert!(down.core.survivors().contains(&Survivor { generation: Generation(1), pid: None, part: Part::Dead }));
}
