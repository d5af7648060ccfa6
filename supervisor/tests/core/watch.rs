//! The reference model: what a driver, the kernel and children would have seen, and which orders are right after that.
//! It knows nothing of the core's states.

use protocol::message::{FromChild, Generation, ToChild};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use supervisor::core::{Action, Event, ExitStatus, GRACE, Kill, Note, RequestId, Settings, Steering, Time};

/// What a child was last told to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Nothing,
    Activate,
    Standby,
    /// It is to be gone by then: its deadline and the grace.
    Drain {
        ends: Time,
    },
    Undrain,
}

/// One process, from the order to start it until it was seen to end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) running: bool,
    pub(crate) greeted: bool,
    /// `Adopt` was ordered and not answered.
    pub(crate) adopting: bool,
    pub(crate) adopted: bool,
    pub(crate) ready: bool,
    /// The kernel steered to it at some time.
    pub(crate) steered: bool,
    pub(crate) told: Told,
    /// The role that it could acknowledge.
    pub(crate) role: Option<u64>,
    pub(crate) unreachable: bool,
    pub(crate) killed: Option<Kill>,
    /// It said that it ends, so nothing more is to be expected of it.
    pub(crate) failed: bool,
    /// It was adopted or told that UDP_GRO is on.
    pub(crate) gro: bool,
}

/// All that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Watch {
    max_generations: usize,
    pub(crate) processes: BTreeMap<Generation, Process>,
    /// Gone, but not retired.
    pub(crate) held: BTreeSet<Generation>,
    pub(crate) waiting: BTreeSet<RequestId>,
    /// In force, as far as the driver said.
    pub(crate) steering: Option<Steering>,
    /// The last that was ordered, whatever came of it.
    ordered: Option<Steering>,
    /// Ordered and not answered, oldest first.
    pub(crate) steers: VecDeque<Steering>,
    pub(crate) checking: Option<Generation>,
    pub(crate) probing: Option<Generation>,
    gro: bool,
    /// A stop or leave was asked for, or follows from what happened.
    pub(crate) ending: bool,
    pub(crate) left: bool,
    pub(crate) started: bool,
    pub(crate) serving: bool,
    pub(crate) exit: Option<u8>,
    last_role: u64,
}

impl Watch {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            max_generations: settings.max_generations,
            processes: BTreeMap::new(),
            held: BTreeSet::new(),
            waiting: BTreeSet::new(),
            steering: None,
            ordered: None,
            steers: VecDeque::new(),
            checking: None,
            probing: None,
            gro: true,
            ending: false,
            left: false,
            started: false,
            serving: false,
            exit: None,
            last_role: 0,
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
        self.see(event);
        // Before anything served, the first failure is the end of the service.
        let failed = |message: &FromChild| matches!(message, FromChild::Failed { .. });
        self.ending |= !self.serving && matches!(event, Event::Message { message, .. } if failed(message));
        let after_event = self.clone();
        for action in actions {
            self.obey(now, action)?;
        }
        self.check(now, next_deadline)?;
        before.check_reaction(&after_event, self, event)
    }

    fn see(&mut self, event: &Event) {
        match event {
            Event::Upgrade { waiter, .. } | Event::Rollback { waiter } => self.waiting.extend(waiter),
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
                self.with(*active, |process| process.steered = true);
            }
            Event::SteerFailed { .. } => drop(self.steers.pop_front()),
            Event::Message { generation, message } => self.with(*generation, |process| match message {
                FromChild::Hello(_) => process.greeted = true,
                FromChild::Ready => process.ready |= process.adopted || process.adopting,
                FromChild::Failed { .. } => process.failed = true,
                FromChild::Ack { .. } => process.role = None,
                FromChild::Keep { .. }
                | FromChild::Starting { .. }
                | FromChild::Unhealthy { .. }
                | FromChild::Stats(_)
                | FromChild::Unsupported { .. } => {}
            }),
            Event::ChannelLost { generation, .. } => self.with(*generation, |process| process.unreachable = true),
            Event::Exited { generation, status } => {
                let stand_in = self.processes.get(generation).is_some_and(|process| process.told == Told::Undrain);
                let unasked = *status == ExitStatus::Code(0) && self.is_active(*generation) && !stand_in;
                self.processes.remove(generation);
                self.held.insert(*generation);
                self.ending |= !self.serving || (unasked && self.standby().is_none());
            }
            Event::Start => self.started = true,
            Event::Reload | Event::Leave { .. } | Event::Garbage { .. } | Event::Probed { .. } | Event::Tick => {}
        }
    }

    fn obey(&mut self, now: Time, action: &Action) -> Result<(), String> {
        let answer = matches!(action, Action::Reply { .. } | Action::Note(_));
        require(answer || self.exit.is_none(), "an order after the end")?;
        match action {
            Action::Check { generation } => self.checking = Some(*generation),
            Action::StopCheck { .. } => self.checking = None,
            Action::Rekey => {
                require(self.processes.is_empty() && self.held.is_empty(), "new keys while something is there")?;
                (self.steering, self.ordered) = (None, None);
                self.steers.clear();
            }
            Action::Spawn { generation } => {
                require(!self.ending, "spawn in a stop")?;
                require(self.checking.is_none(), "spawn beside a check command")?;
                let mut starting = self.processes.values().filter(|process| process.running && !process.steered);
                let in_flight = starting.any(|process| process.killed.is_none() && !process.failed);
                require(!in_flight, "two upgrades in flight")?;
                let known = self.processes.insert(*generation, Process::new()).is_some();
                require(!known && !self.held.contains(generation), "a number used twice")?;
                require(self.processes.len() <= self.max_generations, "more than max-generations live")?;
            }
            Action::Adopt { generation, gro, older_live, takes_over, .. } => {
                let others = self.processes.len() > 1;
                require(*gro == self.gro && *gro != others, "UDP_GRO does not fit the number of live generations")?;
                require(*older_live == others, "older_live is wrong")?;
                require(takes_over.is_none_or(|dead| self.held.contains(&dead)), "takes over from a live one")?;
                let process = self.processes.get_mut(generation).ok_or("adopt for nobody")?;
                require(process.greeted && !process.adopted && !process.adopting, "adopt out of turn")?;
                (process.adopting, process.gro) = (true, *gro);
            }
            Action::Send { generation, message } => self.send(now, *generation, message)?,
            Action::Gro { on } => {
                require(!on || self.processes.len() == 1, "UDP_GRO on beside another")?;
                self.gro = *on;
            }
            Action::Steer(steering) => {
                require(!self.ending, "steering changed in a stop")?;
                self.check_steering(steering)?;
                self.steers.push_back(steering.clone());
                self.ordered = Some(steering.clone());
            }
            Action::Kill { generation, how } => {
                let process = self.processes.get_mut(generation).ok_or("signal for one that is gone")?;
                require(process.running, "signal before there is a process")?;
                require(process.killed != Some(Kill::Group), "signal after SIGKILL")?;
                process.killed = Some(*how);
                self.ending |= !self.serving;
            }
            Action::Retire { generation } => {
                require(self.held.remove(generation), "retired twice or while it lives")?;
                let clean =
                    self.ordered.as_ref().is_none_or(|s| s.active != *generation && !s.live.contains(generation));
                require(clean || self.ending || self.processes.is_empty(), "retired while steered to")?;
            }
            Action::Probe { generation } => {
                require(self.probing.replace(*generation).is_none(), "two probes")?;
                require(self.steering.as_ref().is_some_and(|s| s.active == *generation), "probe of an inactive one")?;
            }
            Action::StopProbe => require(self.probing.take().is_some(), "no probe to stop")?,
            Action::Reply { to, .. } => require(self.waiting.remove(to), "answered twice, or nobody asked")?,
            Action::Note(note) => match note {
                Note::Serving => require(!std::mem::replace(&mut self.serving, true), "serving for the second time")?,
                Note::Changed | Note::Stopping | Note::Info(_) | Note::Warn(_) => {}
            },
            Action::Exit { status } => {
                require(self.waiting.is_empty(), "somebody waits at the end")?;
                require(
                    self.left || (self.processes.is_empty() && self.held.is_empty()),
                    "something lives at the end",
                )?;
                require(self.ending, "ends unasked")?;
                self.exit = Some(*status);
            }
        }
        Ok(())
    }

    fn send(&mut self, now: Time, generation: Generation, message: &ToChild) -> Result<(), String> {
        let ending = self.ending;
        let in_force = self.steering.as_ref().is_some_and(|steering| steering.active == generation);
        let wanted = self.is_wanted(generation);
        let process = self.processes.get_mut(&generation).ok_or("message for one that is gone")?;
        require(process.running && !process.unreachable, "message for one that can't be told")?;
        let role = match *message {
            ToChild::Activate { seq } => {
                require(wanted && process.ready, "activate without steering to it")?;
                require(process.told != Told::Undrain, "activate for a stand-in")?;
                process.told = Told::Activate;
                Some(seq)
            }
            ToChild::Standby { seq } => {
                require(!in_force && process.told == Told::Activate, "standby while it is steered to")?;
                process.told = Told::Standby;
                Some(seq)
            }
            ToChild::Drain { seq, timeout_ms, .. } => {
                require(ending || (!in_force && !wanted), "GOAWAY before the switch")?;
                let ends = now.after(Duration::from_millis(timeout_ms)).after(GRACE);
                if let Told::Drain { ends: earlier } = process.told {
                    require(ends < earlier, "a longer drain after a shorter one")?;
                }
                process.told = Told::Drain { ends };
                Some(seq)
            }
            ToChild::Undrain { seq } => {
                require(matches!(process.told, Told::Drain { .. }), "undrain for one that does not drain")?;
                process.told = Told::Undrain;
                Some(seq)
            }
            ToChild::Gro { on } => {
                require(on == self.gro, "told the wrong UDP_GRO")?;
                process.gro = on;
                None
            }
            ToChild::Alone => {
                require(self.processes.len() == 1, "alone beside another")?;
                None
            }
            ToChild::Refused { .. } => {
                process.failed = true;
                self.ending |= !self.serving;
                None
            }
            ToChild::Reload => None,
            ToChild::Adopt(_)
            | ToChild::Canary { .. }
            | ToChild::Heir { .. }
            | ToChild::Link { .. }
            | ToChild::Counters { .. }
            | ToChild::Unsupported { .. } => return Err(format!("{message:?} is not the core's")),
        };
        if let Some(seq) = role {
            require(seq > self.last_role, "role numbers go back")?;
            self.last_role = seq;
            if let Some(process) = self.processes.get_mut(&generation) {
                process.role = Some(seq);
            }
        }
        Ok(())
    }

    /// Only a ready one that is not leaving, a dead one whose sockets are held, or a stand-in gets new handshakes.
    fn check_steering(&self, steering: &Steering) -> Result<(), String> {
        match self.processes.get(&steering.active) {
            Some(process) => {
                require(process.ready, "steering to an unready one")?;
                require(!matches!(process.told, Told::Drain { .. }), "steering to a draining one")?;
                require(process.killed.is_none(), "steering to one that is being ended")?;
                let others = self.processes.values().filter(|other| other.adopted || other.adopting).count() > 1;
                require(!others || !self.gro, "a switch with UDP_GRO on")?;
            }
            None => require(self.held.contains(&steering.active), "steering to a gone one")?,
        }
        for generation in &steering.live {
            match self.processes.get(generation) {
                Some(process) => require(process.ready, "an unready one has a live range")?,
                None => require(*generation == steering.active, "a gone one has a live range")?,
            }
        }
        require(steering.live.contains(&steering.active), "the active one has no live range")?;
        require(steering.live.is_sorted(), "live ranges out of order")
    }

    /// What holds between any two events.
    fn check(&self, now: Time, next_deadline: Option<Time>) -> Result<(), String> {
        require(next_deadline.is_none_or(|deadline| deadline > now), "a deadline is overdue")?;
        if self.exit.is_some() {
            return require(next_deadline.is_none(), "a deadline after the end");
        }
        for process in self.processes.values() {
            if let Told::Drain { ends } = process.told {
                require(ends > now || process.killed == Some(Kill::Group), "a drain goes on after its deadline")?;
            }
        }
        let moves = next_deadline.is_some() || self.something_is_due();
        require(moves || !self.started || self.waiting.is_empty(), "an upgrade that nothing ends")?;
        require(moves || !self.ending, "a stop that nothing ends")?;
        if self.ending {
            return Ok(());
        }
        require(self.serving || self.starting(), "nothing is on the way")?;
        if self.serving {
            self.check_active(moves)?;
        }
        Ok(())
    }

    /// Exactly one generation is active while any can be.
    fn check_active(&self, moves: bool) -> Result<(), String> {
        let mut active = self.processes.keys().filter(|generation| self.is_active(**generation));
        let first = active.next();
        require(active.next().is_none(), "two are active")?;
        let Some(generation) = first else {
            require(self.standby().is_none(), "nobody is active beside a standby")?;
            return require(moves, "nobody is active and nothing is on the way");
        };
        let wanted = self.ordered.as_ref();
        let candidate = wanted.filter(|wanted| self.processes.get(&wanted.active).is_some_and(|p| !p.steered));
        let right = wanted.is_some_and(|wanted| wanted.active == *generation) || candidate.is_some();
        require(right, "the active one is not steered to")?;
        let alone = self.processes.len() == 1;
        let told = self.processes.get(generation).is_some_and(|process| process.gro || process.unreachable);
        require(!alone || (self.gro && told), "UDP_GRO is off although one is left")
    }

    /// What has to follow at once from one event.
    fn check_reaction(&self, seen: &Self, after: &Self, event: &Event) -> Result<(), String> {
        let Event::Exited { generation, .. } = event else { return Ok(()) };
        let was_active = self.is_active(*generation);
        let standby = seen.standby();
        if let (true, Some(standby), false) = (was_active, standby, seen.ending) {
            let told = after.processes.get(&standby).is_some_and(|p| p.told == Told::Activate || p.unreachable);
            require(told, "the standby did not take over")?;
        }
        Ok(())
    }

    /// Something other than a deadline is on its way: an answer of the driver, or the end of a killed process.
    fn something_is_due(&self) -> bool {
        !self.steers.is_empty()
            || self.checking.is_some()
            || self.processes.values().any(|process| !process.running || process.killed == Some(Kill::Group))
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
    fn is_active(&self, generation: Generation) -> bool {
        let Some(process) = self.processes.get(&generation).filter(|process| process.killed.is_none()) else {
            return false;
        };
        if process.unreachable {
            return process.steered && self.is_wanted(generation);
        }
        // One that was rolled back because it says that it ends is told nothing more.
        let ends = process.failed && !self.is_wanted(generation);
        matches!(process.told, Told::Activate | Told::Undrain) && !ends
    }

    fn is_wanted(&self, generation: Generation) -> bool {
        self.ordered.as_ref().is_some_and(|steering| steering.active == generation)
    }

    fn with(&mut self, generation: Generation, change: impl FnOnce(&mut Process)) {
        if let Some(process) = self.processes.get_mut(&generation) {
            change(process);
        }
    }

    /// The same with other names and as if the present were the epoch (see `Core::canonical`).
    pub(crate) fn renamed(
        &self,
        now: Time,
        generations: &BTreeMap<Generation, Generation>,
        roles: &BTreeMap<u64, u64>,
    ) -> Self {
        let name = |generation: &Generation| generations.get(generation).copied().unwrap_or(Generation(0));
        let steering = |steering: &Steering| Steering {
            live: steering.live.iter().map(name).collect(),
            active: name(&steering.active),
            canary: None,
        };
        let process = |process: &Process| {
            let mut process = process.clone();
            process.role = process.role.and_then(|role| roles.get(&role).copied());
            if let Told::Drain { ends } = process.told {
                process.told = Told::Drain { ends: Time::default().after(now.until(ends)) };
            }
            process
        };
        Self {
            processes: self.processes.iter().map(|(generation, p)| (name(generation), process(p))).collect(),
            held: self.held.iter().map(name).collect(),
            steering: self.steering.as_ref().map(steering),
            ordered: self.ordered.as_ref().map(steering),
            steers: self.steers.iter().map(steering).collect(),
            checking: self.checking.as_ref().map(name),
            probing: self.probing.as_ref().map(name),
            last_role: u64::try_from(roles.len()).unwrap(),
            ..self.clone()
        }
    }
}

impl Process {
    fn new() -> Self {
        Self {
            running: false,
            greeted: false,
            adopting: false,
            adopted: false,
            ready: false,
            steered: false,
            told: Told::Nothing,
            role: None,
            unreachable: false,
            killed: None,
            failed: false,
            gro: true,
        }
    }
}

fn require(holds: bool, violation: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(violation.to_owned()) }
}
