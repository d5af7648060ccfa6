//! The reference model: what a driver, the kernel and children would have seen, and which orders are right after that.
//! It knows nothing of the core's states.

mod checks;
mod orders;
mod process;
mod renamed;

pub(crate) use process::{Process, Told};

use protocol::message::{FromChild, Generation, ToChild};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use supervisor::core::{
    ACKNOWLEDGE, Action, Event, ExitStatus, GRACE, Note, RequestId, START_LIMIT, STOP_TIMEOUT, STUCK, Settings,
    Steering, Time,
};

/// One that had sockets and has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gone {
    /// When.
    at: Time,
    /// It said that it was ready.
    ready: bool,
    /// The kernel steered to it at some time.
    steered: bool,
}

/// All that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Watch {
    settings: Settings,
    /// Whether it minds how long requests and the end take, in addition to that something ends them.
    pub(crate) timed: bool,
    pub(crate) processes: BTreeMap<Generation, Process>,
    /// Gone, but not retired.
    pub(crate) held: BTreeSet<Generation>,
    /// Seen to end after they had sockets, until they are forgotten.
    pub(crate) gone: BTreeMap<Generation, Gone>,
    /// Nobody knows whether these have ended.
    pub(crate) lost: BTreeSet<Generation>,
    /// Requests, and when they are answered at the latest.
    pub(crate) waiting: BTreeMap<RequestId, Time>,
    /// In force, as far as the driver said.
    pub(crate) steering: Option<Steering>,
    /// The last that was ordered, whatever came of it.
    ordered: Option<Steering>,
    /// Ordered and not answered, oldest first.
    pub(crate) steers: VecDeque<Steering>,
    pub(crate) checking: Option<Generation>,
    pub(crate) probing: Option<Generation>,
    /// Who was told the counters of the others last.
    speaker: Option<Generation>,
    gro: bool,
    /// A stop or leave was asked for, or follows from what happened.
    pub(crate) ending: bool,
    pub(crate) left: bool,
    /// When the supervisor ends at the latest.
    end_by: Option<Time>,
    pub(crate) started: bool,
    pub(crate) serving: bool,
    pub(crate) exit: Option<u8>,
    last_role: u64,
    /// The highest number that was used.
    last: Option<Generation>,
}

impl Watch {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            timed: true,
            processes: BTreeMap::new(),
            held: BTreeSet::new(),
            gone: BTreeMap::new(),
            lost: BTreeSet::new(),
            waiting: BTreeMap::new(),
            steering: None,
            ordered: None,
            steers: VecDeque::new(),
            checking: None,
            probing: None,
            speaker: None,
            gro: true,
            ending: false,
            left: false,
            end_by: None,
            started: false,
            serving: false,
            exit: None,
            last_role: 0,
            last: None,
        }
    }

    /// Takes in one event with the orders that followed, and says what is wrong with them.
    pub(crate) fn step(
        &mut self,
        now: Time,
        event: &Event,
        actions: &[Action],
        next_deadline: Option<Time>,
    ) -> Result<(), String> {
        let before = self.clone();
        self.see(now, event);
        // Before anything served, the first failure is the end of the service.
        let failed = |message: &FromChild| matches!(message, FromChild::Failed { .. });
        self.ending |= !self.serving && matches!(event, Event::Message { message, .. } if failed(message));
        let after_event = self.clone();
        // Whatever is done may be something that a status shows; after the last order nobody is there who could show it.
        let shown = matches!(actions, [.., Action::Note(Note::Changed)]);
        let last = matches!(actions, [.., Action::Exit { .. }]);
        require(shown || last || actions.is_empty(), "a change that nobody is told of")?;
        let reload = |action: &Action| matches!(action, Action::Send { message: ToChild::Reload, .. });
        require(matches!(event, Event::Reload) || !actions.iter().any(reload), "reload unasked")?;
        for action in actions {
            self.obey(now, action)?;
        }
        if self.ending && !before.ending {
            let drain = self.settings.stop_timeout.unwrap_or(STOP_TIMEOUT);
            self.end_by = Some(now.after(drain + 2 * GRACE + ACKNOWLEDGE + STUCK));
        }
        require(next_deadline.is_none_or(|next| next > now), "what is due is left undone")?;
        self.check(now, next_deadline)?;
        before.check_reaction(&after_event, self, event)
    }

    fn see(&mut self, now: Time, event: &Event) {
        match event {
            Event::Upgrade { waiter, .. } | Event::Rollback { waiter } => {
                let Settings { ready_timeout, probation, .. } = self.settings;
                // Room, check, start and probation, and all that once more for a folded one.
                let once = ready_timeout + START_LIMIT.max(ready_timeout) + probation + Duration::from_secs(60);
                self.waiting.extend(waiter.map(|waiter| (waiter, now.after(2 * once))));
            }
            Event::Stop => self.ending = true,
            Event::Leave { stored } if *stored && !self.ending => (self.ending, self.left) = (true, true),
            Event::Checked { .. } => self.checking = None,
            Event::Spawned { generation, .. } => self.with(*generation, |process| process.running = true),
            Event::SpawnFailed { generation, .. } => {
                self.processes.remove(generation);
                self.held.insert(*generation);
                self.ending |= !self.serving;
            }
            Event::Adopted { generation } => {
                self.with(*generation, |process| (process.adopting, process.adopted) = (false, true));
            }
            Event::AdoptFailed { generation, .. } => self.with(*generation, |process| process.adopting = false),
            Event::Steered { active } => {
                self.steering = self.steers.pop_front();
                self.see_switch(*active);
            }
            Event::SteerFailed { .. } => drop(self.steers.pop_front()),
            Event::Message { generation, message } => self.with(*generation, |process| match message {
                FromChild::Hello(_) => process.greeted = true,
                FromChild::Ready => process.ready |= process.adopted || process.adopting,
                // With sockets that are steered to all the time, whoever has sessions serves.
                FromChild::Stats(stats) => {
                    let serves = process.adopted && process.takes_over.is_some() && stats.sessions > 0;
                    process.ready |= serves;
                }
                FromChild::Failed { .. } => process.failed = true,
                FromChild::Ack { .. } => process.role = None,
                FromChild::Keep { .. }
                | FromChild::Starting { .. }
                | FromChild::Unhealthy { .. }
                | FromChild::Unsupported { .. } => {}
            }),
            Event::ChannelLost { generation, .. } => self.with(*generation, |process| process.unreachable = true),
            Event::Exited { generation, status } => {
                let stand_in = self.processes.get(generation).is_some_and(|process| process.told == Told::Undrain);
                let unasked = *status == ExitStatus::Code(0) && self.is_active(*generation) && !stand_in;
                let process = self.processes.remove(generation);
                let process = process.filter(|one| one.adopting || one.adopted);
                match (status, process) {
                    (ExitStatus::Lost, _) => drop(self.lost.insert(*generation)),
                    // One that has drained to its end has told its clients itself.
                    (ExitStatus::Code(0), _) | (_, None) => {}
                    (ExitStatus::Code(_) | ExitStatus::Signal(_) | ExitStatus::Unknown, Some(process)) => {
                        let Process { ready, steered, .. } = process;
                        self.gone.insert(*generation, Gone { at: now, ready, steered });
                    }
                }
                self.held.insert(*generation);
                self.ending |= !self.serving || (unasked && self.standby().is_none());
            }
            Event::Start => self.started = true,
            Event::Reload
            | Event::Resume { .. }
            | Event::Leave { .. }
            | Event::Garbage { .. }
            | Event::Probed { .. }
            | Event::Tick => {}
        }
    }

    /// Time has passed while something was due that is not the core's to do, so that it does not count.
    pub(crate) fn excuse(&mut self, time: Duration) {
        if self.something_is_due() || !self.started {
            let later = |latest: &mut Time| *latest = latest.after(time);
            self.waiting.values_mut().for_each(later);
            self.end_by.iter_mut().for_each(later);
        }
    }

    /// An answer of the driver is on its way.
    pub(crate) fn something_is_due(&self) -> bool {
        !self.steers.is_empty()
            || self.checking.is_some()
            || self.processes.values().any(|process| !process.running || process.adopting)
    }

    fn starting(&self) -> bool {
        self.processes.values().any(|process| !process.steered) || self.held.is_empty() && self.processes.is_empty()
    }

    pub(crate) fn standby(&self) -> Option<Generation> {
        self.processes
            .iter()
            .find(|(_, process)| process.told == Told::Standby && process.killed.is_none())
            .map(|(generation, _)| *generation)
    }

    /// Whether it was told so, or would have been if it could be told anything.
    pub(super) fn is_active(&self, generation: Generation) -> bool {
        self.processes
            .get(&generation)
            .is_some_and(|process| process.killed.is_none() && matches!(process.told, Told::Activate | Told::Undrain))
    }

    /// The kernel steers to `active`. Who can't be told its role has it all the same.
    fn see_switch(&mut self, active: Generation) {
        let wanted = self.is_wanted(active);
        let Some(process) = self.processes.get_mut(&active) else { return };
        let first = !std::mem::replace(&mut process.steered, true);
        if !first || !wanted || process.killed.is_some() || process.failed {
            return;
        }
        for (generation, process) in &mut self.processes {
            if process.unreachable && process.killed.is_none() {
                match process.told {
                    Told::Nothing if *generation == active => process.told = Told::Activate,
                    Told::Activate if *generation != active => process.told = Told::Standby,
                    Told::Nothing | Told::Activate | Told::Standby | Told::Drain { .. } | Told::Undrain => {}
                }
            }
        }
    }

    /// Steering goes back to one that had it before: one that failed and ends by itself is told nothing more.
    fn see_return(&mut self, active: Generation) {
        let before = self.ordered.as_ref().map(|steering| steering.active);
        if !self.processes.get(&active).is_some_and(|process| process.steered) || before == Some(active) {
            return;
        }
        self.with(active, |process| {
            if process.unreachable && process.told == Told::Standby {
                process.told = Told::Activate;
            }
        });
        if let Some(process) = before.and_then(|before| self.processes.get_mut(&before))
            && process.failed
            && process.steered
        {
            process.told = Told::Nothing;
        }
    }

    fn is_wanted(&self, generation: Generation) -> bool {
        self.ordered.as_ref().is_some_and(|steering| steering.active == generation)
    }

    fn with(&mut self, generation: Generation, change: impl FnOnce(&mut Process)) {
        if let Some(process) = self.processes.get_mut(&generation) {
            change(process);
        }
    }
}

fn require(holds: bool, violation: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(violation.to_owned()) }
}
