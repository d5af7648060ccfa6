//! A core with everything around it played by the test: it is fed with events and watched.

use crate::watch::Watch;
use protocol::message::{FromChild, Generation, Hello, Kind, Stats, ToChild, VersionRange, Wanted};
use std::time::Duration;
use supervisor::core::snapshot::StateView;
use supervisor::core::{
    Action, Core, Event, ExitStatus, Kill, Note, Outcome, RequestId, Settings, Snapshot, SpawnError, Steering, Time,
};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn settings() -> Settings {
    Settings {
        drain_timeout: secs(600),
        stop_timeout: None,
        ready_timeout: secs(30),
        probation: secs(2),
        max_generations: 4,
        check: false,
        health: false,
    }
}

pub(crate) fn hello() -> Hello {
    Hello {
        protocol: VersionRange::OURS,
        program: "relay".to_owned(),
        version: "1".to_owned(),
        pid: 1,
        listeners: vec![Wanted {
            name: "main".to_owned(),
            kind: Kind::Quic,
            address: "[::]:443".to_owned(),
            members: 2,
            mode: None,
        }],
        drain_timeout_ms: None,
        idle_timeout_ms: None,
        ledger: true,
    }
}

pub(crate) fn done(active: u32) -> Option<Outcome> {
    Some(Outcome::Done { active: Generation(active) })
}

/// Why the upgrade failed that this request waited for.
pub(crate) fn failed_with(life: &Life, waiter: RequestId) -> String {
    match life.answer(waiter) {
        Some(Outcome::Failed { reason, .. }) => reason.clone(),
        other => panic!("not failed: {other:?}"),
    }
}

/// One life. Every event goes through [`Watch`], which knows the invariants.
pub(crate) struct Life {
    pub(crate) core: Core,
    pub(crate) now: Time,
    watch: Watch,
    requests: u64,
    /// What followed the last event (or events, for helpers that feed several).
    pub(crate) out: Vec<Action>,
}

impl Life {
    pub(crate) fn new(settings: Settings) -> Self {
        let watch = Watch::new(&settings);
        Self { core: Core::new(settings, 1), now: Time::since_epoch(secs(1_000)), watch, requests: 0, out: Vec::new() }
    }

    /// Generation 1 is active.
    pub(crate) fn serving(settings: Settings) -> Self {
        let mut life = Self::new(settings);
        life.feed(Event::Start);
        life.bring_up(1);
        life
    }

    /// Generation 1 is on standby, 2 is active and on probation; the request waits for it.
    pub(crate) fn on_probation(settings: Settings) -> (Self, RequestId) {
        let mut life = Self::serving(settings);
        let waiter = life.upgrade();
        life.bring_up(2);
        (life, waiter)
    }

    /// Generations 1 to `count` - 1 drain, `count` is active.
    pub(crate) fn with_generations(settings: Settings, count: u32) -> Self {
        let mut life = Self::serving(settings);
        for generation in 2..=count {
            life.upgrade();
            life.bring_up(generation);
            life.acknowledge(generation);
            life.acknowledge(generation - 1);
            life.pass(secs(2));
            life.acknowledge(generation - 1);
        }
        life
    }

    /// Feeds one event; what follows from it is in `out` alone.
    pub(crate) fn feed(&mut self, event: Event) {
        self.out.clear();
        self.and_feed(event);
    }

    fn and_feed(&mut self, event: Event) {
        let mut out = Vec::new();
        self.core.handle(self.now, event.clone(), &mut out);
        if let Err(violation) = self.watch.step(self.now, &event, &out, self.core.next_deadline()) {
            panic!("{violation}: {event:?} -> {out:?}\n{:#?}", self.core);
        }
        self.out.append(&mut out);
    }

    /// Feeds one event that a driver would not report then.
    pub(crate) fn feed_unwatched(&mut self, event: Event) {
        self.out.clear();
        self.core.handle(self.now, event, &mut self.out);
    }

    /// Feeds what a driver answers to `Steer`, all in turn.
    pub(crate) fn steered(&mut self) {
        while let Some(steering) = self.watch.steers.front() {
            self.and_feed(Event::Steered { active: steering.active });
        }
    }

    /// Lets time pass from deadline to deadline; `out` has all that followed.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.out.clear();
        let end = self.now.after(time);
        while let Some(deadline) = self.core.next_deadline().filter(|deadline| *deadline <= end) {
            self.pass_to(deadline);
        }
        // Whatever is due has a deadline, so nothing happens between two of them.
        let done = self.out.len();
        self.pass_to(end);
        assert_eq!(self.out[done..], [], "without a deadline");
    }

    fn pass_to(&mut self, moment: Time) {
        self.watch.excuse(self.now.until(moment));
        self.now = moment;
        self.and_feed(Event::Tick);
    }

    /// Goes to the next deadline at which more happens than that somebody is forgotten.
    pub(crate) fn pass_to_deadline(&mut self) {
        let forgets = |action: &Action| matches!(action, Action::Forget { .. } | Action::Note(Note::Changed));
        self.out.clear();
        loop {
            let done = self.out.len();
            self.pass_to(self.core.next_deadline().expect("something is due"));
            let new = &self.out[done..];
            if new.is_empty() || !new.iter().all(forgets) {
                return;
            }
        }
    }

    pub(crate) fn spawned(&mut self, generation: u32) {
        self.feed(Event::Spawned { generation: Generation(generation), pid: 100 + generation });
    }

    /// From spawn to adopted.
    pub(crate) fn adopt(&mut self, generation: u32) {
        self.spawned(generation);
        self.and_feed(Event::Message { generation: Generation(generation), message: FromChild::Hello(hello()) });
        self.and_feed(Event::Adopted { generation: Generation(generation) });
    }

    /// From spawn to active.
    pub(crate) fn bring_up(&mut self, generation: u32) {
        self.adopt(generation);
        self.and_feed(Event::Message { generation: Generation(generation), message: FromChild::Ready });
        self.steered();
    }

    pub(crate) fn says(&mut self, generation: u32, message: FromChild) {
        self.feed(Event::Message { generation: Generation(generation), message });
    }

    pub(crate) fn sessions(&mut self, generation: u32, sessions: u64) {
        self.says(generation, FromChild::Stats(Stats { sessions, ..Stats::default() }));
    }

    /// Acknowledges the last role.
    pub(crate) fn acknowledge(&mut self, generation: u32) {
        if let Some(seq) = self.watch.processes.get(&Generation(generation)).and_then(|process| process.role) {
            self.says(generation, FromChild::Ack { seq });
        }
    }

    pub(crate) fn exits(&mut self, generation: u32, status: ExitStatus) {
        self.feed(Event::Exited { generation: Generation(generation), status });
    }

    pub(crate) fn crashes(&mut self, generation: u32) {
        self.exits(generation, ExitStatus::Signal(11));
    }

    pub(crate) fn loses_channel(&mut self, generation: u32) {
        self.feed(Event::ChannelLost { generation: Generation(generation), error: "closed".to_owned() });
    }

    pub(crate) fn spawn_fails(&mut self, generation: u32) {
        let error = SpawnError::NotFound("not found".to_owned());
        self.feed(Event::SpawnFailed { generation: Generation(generation), error });
    }

    pub(crate) fn waiter(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    pub(crate) fn upgrade(&mut self) -> RequestId {
        let waiter = self.waiter();
        self.feed(Event::Upgrade { waiter: Some(waiter), evict_oldest: false });
        waiter
    }

    pub(crate) fn rollback(&mut self) -> RequestId {
        let waiter = self.waiter();
        self.feed(Event::Rollback { waiter: Some(waiter) });
        waiter
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.core.snapshot(self.now)
    }

    pub(crate) fn state(&self, generation: u32) -> Option<StateView> {
        let generations = self.snapshot().generations;
        generations.iter().find(|view| view.generation == Generation(generation)).map(|view| view.state)
    }

    /// How the request was answered by what is in `out`.
    pub(crate) fn answer(&self, waiter: RequestId) -> Option<&Outcome> {
        self.out.iter().find_map(|action| match action {
            Action::Reply { to, outcome } if *to == waiter => Some(outcome),
            _ => None,
        })
    }

    /// The orders in `out` that concern the dead, in short.
    pub(crate) fn heirs(&self) -> Vec<String> {
        let brief = |action: &Action| match action {
            Action::Heir { generation, dead } => {
                let dead = dead.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                Some(format!("heir {generation} of {dead}"))
            }
            Action::Forget { generation } => Some(format!("forget {generation}")),
            _ => None,
        };
        self.out.iter().filter_map(brief).collect()
    }

    /// The other orders in `out` in short, without notes.
    pub(crate) fn orders(&self) -> Vec<String> {
        self.out.iter().filter(|action| spoken(action).is_none()).filter_map(brief).collect()
    }

    /// Who speaks for the node and was told so, with the sessions and handshakes of the others; of those that have gone
    /// last.
    pub(crate) fn speaks(&self) -> Option<Told> {
        self.out.iter().rev().filter_map(spoken).find_map(|(speaks, told)| speaks.then_some(told))
    }

    /// Who else was told the same.
    pub(crate) fn is_asked(&self) -> Option<Told> {
        self.out.iter().rev().filter_map(spoken).find_map(|(speaks, told)| (!speaks).then_some(told))
    }

    pub(crate) fn exit_status(&self) -> Option<u8> {
        self.out.iter().find_map(|action| match action {
            Action::Exit { status } => Some(*status),
            _ => None,
        })
    }

    pub(crate) fn noted(&self, note: &Note) -> bool {
        self.out.contains(&Action::Note(note.clone()))
    }

    pub(crate) fn warned(&self, text: &str) -> bool {
        self.out.iter().any(|action| matches!(action, Action::Note(Note::Warn(line)) if line.contains(text)))
    }
}

/// Who was told counters, and the sessions and handshakes in them.
type Told = (u32, Vec<(u64, u64)>);

/// Whether an order makes its recipient speak, and the counters that it tells.
fn spoken(action: &Action) -> Option<(bool, Told)> {
    match action {
        Action::Send { generation, message: ToChild::Counters { speaks, generations, gone, settled: _ } } => {
            let all = generations.iter().map(|one| &one.stats).chain([gone]);
            Some((*speaks, (generation.0, all.map(|stats| (stats.sessions, stats.handshakes)).collect())))
        }
        _ => None,
    }
}

fn brief(action: &Action) -> Option<String> {
    Some(match action {
        Action::Check { generation } => format!("check {generation}"),
        Action::StopCheck { generation } => format!("stop check {generation}"),
        Action::Rekey => "rekey".to_owned(),
        Action::Spawn { generation } => format!("spawn {generation}"),
        Action::Adopt { generation, gro, takes_over, flush, .. } => {
            let gro = if *gro { "on" } else { "off" };
            let takes_over = takes_over.map(|dead| format!(" after {dead}")).unwrap_or_default();
            format!("adopt {generation} gro {gro}{takes_over}{}", if *flush { " flush" } else { "" })
        }
        Action::Send { generation, message } => format!("tell {generation} {}", said(message)),
        Action::Gro { on } => format!("gro {}", if *on { "on" } else { "off" }),
        Action::Steer(Steering { live, active, .. }) => {
            let live = live.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            format!("steer {active} of {live}")
        }
        Action::Kill { generation, how: Kill::Term } => format!("term {generation}"),
        Action::Kill { generation, how: Kill::Group } => format!("kill {generation}"),
        Action::Retire { generation } => format!("retire {generation}"),
        Action::Probe { generation } => format!("probe {generation}"),
        Action::StopProbe => "stop probe".to_owned(),
        Action::Reply { to, .. } => format!("answer {}", to.0),
        Action::Exit { status } => format!("exit {status}"),
        Action::Note(_) | Action::Heir { .. } | Action::Forget { .. } => return None,
    })
}

fn said(message: &ToChild) -> String {
    match message {
        ToChild::Activate { .. } => "activate".to_owned(),
        ToChild::Standby { .. } => "standby".to_owned(),
        ToChild::Drain { timeout_ms, .. } => format!("drain {timeout_ms}"),
        ToChild::Undrain { .. } => "undrain".to_owned(),
        ToChild::Gro { on } => format!("gro {}", if *on { "on" } else { "off" }),
        ToChild::Alone => "alone".to_owned(),
        ToChild::Reload => "reload".to_owned(),
        ToChild::Refused { .. } => "refused".to_owned(),
        other => format!("{other:?}"),
    }
}
