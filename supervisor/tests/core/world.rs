//! A core with an environment that can do anything: what a driver answers, and what children and operators do.

use crate::life::hello;
use crate::watch::{Process, Watch};
use protocol::message::{FromChild, Generation, Hello, Stats, VersionRange};
use std::time::Duration;
use supervisor::core::{Action, Core, Event, ExitStatus, Kill, RequestId, Settings, SpawnError, Time};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Move {
    Start,
    Upgrade {
        waits: bool,
        evict_oldest: bool,
    },
    Rollback,
    Stop,
    Reload,
    Leave {
        stored: bool,
    },
    Checked {
        well: bool,
    },
    Spawned(Generation),
    SpawnFailed(Generation),
    Adopted(Generation),
    AdoptFailed(Generation),
    Steered,
    SteerFailed,
    Probed {
        well: bool,
    },
    Exits(Generation, ExitStatus),
    ChannelLost(Generation),
    Garbage(Generation),
    Says(Generation, Saying),
    /// It never acknowledges its last role.
    Ignores(Generation),
    /// Time passes until the next deadline.
    Tick,
    /// Time passes, but not until then.
    Wait,
}

/// What a child says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Saying {
    Hello,
    ForeignHello,
    Starting,
    Ready,
    Failed,
    Unhealthy,
    Ack,
    StaleAck,
    Stats,
    Unsupported,
}

/// The core and all around it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) watch: Watch,
    pub(crate) now: Time,
    requests: u64,
    pub(crate) violation: Option<String>,
}

impl World {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        let watch = Watch::new(&settings);
        Self { core: Core::new(settings, seed), watch, now: Time::default(), requests: 0, violation: None }
    }

    /// Makes the move and checks what follows from it.
    pub(crate) fn make(&mut self, made: Move) -> Vec<Action> {
        let event = match made {
            Move::Ignores(generation) => {
                if let Some(process) = self.watch.processes.get_mut(&generation) {
                    process.role = None;
                }
                return Vec::new();
            }
            Move::Tick => {
                let next = self.core.next_deadline().unwrap_or(self.now);
                self.pass(self.now.until(next))
            }
            Move::Wait => {
                let next = self.core.next_deadline().unwrap_or_else(|| self.now.after(Duration::from_secs(100)));
                self.pass(self.now.until(next) / 3)
            }
            Move::Start => Event::Start,
            Move::Upgrade { waits, evict_oldest } => {
                Event::Upgrade { waiter: waits.then(|| self.request()), evict_oldest }
            }
            Move::Rollback => Event::Rollback { waiter: Some(self.request()) },
            Move::Stop => Event::Stop,
            Move::Reload => Event::Reload,
            Move::Leave { stored } => Event::Leave { stored },
            Move::Checked { well } => {
                let Some(generation) = self.watch.checking else { return Vec::new() };
                Event::Checked { generation, result: verdict(well) }
            }
            Move::Spawned(generation) => Event::Spawned { generation, pid: generation.0 },
            Move::SpawnFailed(generation) => {
                Event::SpawnFailed { generation, error: SpawnError::NotFound("no program".to_owned()) }
            }
            Move::Adopted(generation) => Event::Adopted { generation },
            Move::AdoptFailed(generation) => Event::AdoptFailed { generation, error: "in use".to_owned(), status: 7 },
            Move::Steered | Move::SteerFailed => {
                let Some(steering) = self.watch.steers.front() else { return Vec::new() };
                let active = steering.active;
                if made == Move::Steered {
                    Event::Steered { active }
                } else {
                    Event::SteerFailed { active, error: "no memory".to_owned() }
                }
            }
            Move::Probed { well } => {
                let Some(generation) = self.watch.probing else { return Vec::new() };
                Event::Probed { generation, result: verdict(well) }
            }
            Move::Exits(generation, status) => Event::Exited { generation, status },
            Move::ChannelLost(generation) => Event::ChannelLost { generation, error: "closed".to_owned() },
            Move::Garbage(generation) => Event::Garbage { generation, error: "not JSON".to_owned() },
            Move::Says(generation, saying) => Event::Message { generation, message: self.message(generation, saying) },
        };
        let out = self.feed(&event);
        if made == Move::Wait && !out.is_empty() {
            self.violation = Some(format!("something is done without a deadline: {out:?}"));
        }
        out
    }

    fn feed(&mut self, event: &Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.core.handle(self.now, event.clone(), &mut out);
        if let Err(violation) = self.watch.step(self.now, event, &out, self.core.next_deadline()) {
            self.violation = Some(format!("{violation}: {event:?} -> {out:?}"));
        }
        out
    }

    fn pass(&mut self, time: Duration) -> Event {
        self.watch.excuse(time);
        self.now = self.now.after(time);
        Event::Tick
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn message(&self, generation: Generation, saying: Saying) -> FromChild {
        match saying {
            Saying::Hello => FromChild::Hello(hello()),
            Saying::ForeignHello => FromChild::Hello(Hello { protocol: VersionRange { min: 90, max: 91 }, ..hello() }),
            Saying::Starting => FromChild::Starting { more_ms: 3_600_000 },
            Saying::Ready => FromChild::Ready,
            Saying::Failed => FromChild::Failed { error: "no certificate".to_owned() },
            Saying::Unhealthy => FromChild::Unhealthy { reason: "no memory".to_owned() },
            Saying::Ack => {
                let role = self.watch.processes.get(&generation).and_then(|process| process.role);
                FromChild::Ack { seq: role.unwrap_or(0) }
            }
            Saying::StaleAck => FromChild::Ack { seq: 0 },
            Saying::Stats => FromChild::Stats(Stats { sessions: 7, ..Stats::default() }),
            Saying::Unsupported => FromChild::Unsupported { message: "undrain".to_owned() },
        }
    }

    /// What the driver owes: answers to orders, and the ends of processes that got SIGKILL.
    pub(crate) fn duties(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        if self.watch.checking.is_some() {
            moves.extend([Move::Checked { well: true }, Move::Checked { well: false }]);
        }
        if !self.watch.steers.is_empty() {
            moves.extend([Move::Steered, Move::SteerFailed]);
        }
        for (&generation, process) in &self.watch.processes {
            if !process.running {
                moves.extend([Move::Spawned(generation), Move::SpawnFailed(generation)]);
            }
            if process.adopting {
                moves.extend([Move::Adopted(generation), Move::AdoptFailed(generation)]);
            }
            if process.killed == Some(Kill::Group) {
                moves.push(Move::Exits(generation, ExitStatus::Signal(9)));
            }
        }
        moves
    }

    /// What a well-behaved child does next.
    pub(crate) fn progress(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (&generation, process) in self.running() {
            if process.role.is_some() {
                moves.push(Move::Says(generation, Saying::Ack));
            }
            if !process.greeted {
                moves.push(Move::Says(generation, Saying::Hello));
            } else if process.adopted && !process.ready {
                moves.push(Move::Says(generation, Saying::Ready));
            }
        }
        if self.watch.probing.is_some() {
            moves.push(Move::Probed { well: true });
        }
        moves
    }

    /// What a child can do wrong, and how it can end.
    pub(crate) fn faults(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        if self.watch.probing.is_some() {
            moves.push(Move::Probed { well: false });
        }
        for (&generation, process) in self.running() {
            let ends = [ExitStatus::Code(0), ExitStatus::Signal(11), ExitStatus::Lost];
            moves.extend(ends.map(|status| Move::Exits(generation, status)));
            let sayings = [
                Saying::Hello,
                Saying::ForeignHello,
                Saying::Starting,
                Saying::Ready,
                Saying::Failed,
                Saying::Unhealthy,
                Saying::StaleAck,
                Saying::Stats,
                Saying::Unsupported,
            ];
            moves.extend(sayings.map(|saying| Move::Says(generation, saying)));
            moves.push(Move::Garbage(generation));
            if !process.unreachable {
                moves.push(Move::ChannelLost(generation));
            }
            if process.role.is_some() {
                moves.push(Move::Ignores(generation));
            }
        }
        moves
    }

    /// What operators do.
    pub(crate) fn requests(&self) -> Vec<Move> {
        let upgrades = [(true, false), (true, true), (false, false), (false, true)];
        let mut moves: Vec<_> =
            upgrades.map(|(waits, evict_oldest)| Move::Upgrade { waits, evict_oldest }).into_iter().collect();
        moves.extend([Move::Rollback, Move::Reload, Move::Stop]);
        moves.extend([Move::Leave { stored: true }, Move::Leave { stored: false }]);
        moves
    }

    /// As if the clients of all that have ended had given up.
    pub(crate) fn forget_the_dead(&mut self) {
        let mut core = serde_json::to_value(&self.core).unwrap();
        core["mourned"] = serde_json::json!({});
        for child in core["children"].as_object_mut().unwrap().values_mut() {
            child["heir_of"] = serde_json::json!([]);
        }
        self.core = serde_json::from_value(core).unwrap();
        self.watch.gone.clear();
        self.watch.lost.clear();
        self.watch.processes.values_mut().for_each(|process| process.heir_of.clear());
    }

    fn running(&self) -> impl Iterator<Item = (&Generation, &Process)> {
        self.watch.processes.iter().filter(|(_, process)| process.running)
    }

    /// The same world under the names and from the moment that make it comparable with others.
    pub(crate) fn canonical(&self) -> Self {
        let canonical = self.core.canonical(self.now);
        Self {
            watch: self.watch.renamed(self.now, &canonical),
            requests: u64::try_from(canonical.requests.len()).unwrap(),
            core: canonical.core,
            now: Time::default(),
            violation: self.violation.clone(),
        }
    }
}

fn verdict(well: bool) -> Result<(), String> {
    if well { Ok(()) } else { Err("503".to_owned()) }
}
