//! What children say, and what shows on their channels.

use super::event::Action;
use super::generation::{ACKNOWLEDGE, About, Channel, Child, Escalation, MORE_TIME, STATS_TIMEOUT, State, Step};
use super::orders::{End, info, warn};
use super::time::Time;
use super::upgrade::Failure;
use super::{Core, Holder, Phase, Stage, Upgrade, Verdict};
use protocol::exit;
use protocol::message::{FromChild, Generation, Hello, ToChild, VersionRange};
use std::time::Duration;

/// Where in its life a child is, for those facts whose meaning depends on it.
enum Standing {
    /// Starting or ready: its failure is that of the attempt to make it active.
    Candidate,
    /// Active, and there is a standby to go back to.
    Probation,
    /// Active, and there is nobody to go back to.
    Active,
    /// Standby, draining or standing in.
    Other,
    /// Being ended, or not live.
    Over,
}

impl Core {
    pub(super) fn spawned(&mut self, now: Time, generation: Generation, pid: u32, out: &mut Vec<Action>) {
        let Some(child) = self.children.get_mut(&generation) else { return };
        if child.pid.replace(pid).is_some() {
            return;
        }
        match &mut child.state {
            State::Starting { step: step @ Step::Spawning, .. } => *step = Step::Greeting,
            State::Ending { escalation, .. } => {
                let how = match escalation {
                    Escalation::Expected { .. } | Escalation::Terminated { .. } => End::Term,
                    Escalation::Killed { .. } | Escalation::Stuck => End::Group,
                };
                self.end(now, generation, how, out);
            }
            State::Starting { .. } | State::Ready | State::Active | State::Standby | State::Draining { .. } => {}
        }
    }

    pub(super) fn adopted(&mut self, generation: Generation) {
        if let Some(step @ Step::Adopting) = self.step(generation) {
            *step = Step::Adopted;
        }
    }

    pub(super) fn adopt_failed(
        &mut self,
        now: Time,
        generation: Generation,
        error: String,
        status: u8,
        out: &mut Vec<Action>,
    ) {
        if let Some(Step::Adopting) = self.step(generation) {
            let failure = Failure { verdict: Verdict::Status(status), ..Failure::not_ready(error) };
            self.refuse(now, generation, failure, out);
        }
    }

    pub(super) fn message(&mut self, now: Time, generation: Generation, message: FromChild, out: &mut Vec<Action>) {
        if !self.children.contains_key(&generation) {
            return;
        }
        match message {
            FromChild::Hello(hello) => self.hello(now, generation, hello, out),
            FromChild::Keep { .. } => {}
            FromChild::Starting { more_ms } => self.more_time(now, generation, Duration::from_millis(more_ms)),
            FromChild::Ready => self.ready(now, generation, out),
            FromChild::Failed { error } => self.unwell(now, generation, error, End::Wait, out),
            FromChild::Unhealthy { reason } => {
                self.unwell(now, generation, format!("unhealthy: {reason}"), End::Term, out);
            }
            FromChild::Ack { seq } => {
                if let Some(child) = self.children.get_mut(&generation) {
                    let before = child.may_answer();
                    child.pending = child.pending.filter(|pending| pending.seq != seq);
                    if child.may_answer() != before {
                        self.counters_changed(generation, out);
                    }
                }
            }
            FromChild::Stats(stats) => {
                let mut serves = false;
                if let Some(child) = self.children.get_mut(&generation) {
                    // Packets come to it from the moment that it has the sockets of a dead one, so an earlier supervisor
                    // may have steered to it, and have been killed with its `ready`.
                    serves = child.takes_over.is_some() && (stats.sessions > 0 || stats.handshakes > 0);
                    child.stats = stats;
                    child.stats_due = Some(now.after(STATS_TIMEOUT));
                }
                self.counters_changed(generation, out);
                if serves && let Some(Step::Adopted) = self.step(generation) {
                    self.ready(now, generation, out);
                }
            }
            FromChild::Unsupported { message } => {
                out.push(warn(format!("generation {generation} does not know the message {message:?}")));
            }
        }
    }

    fn hello(&mut self, now: Time, generation: Generation, hello: Hello, out: &mut Vec<Action>) {
        let Some(Step::Greeting) = self.step(generation) else {
            self.out_of_turn(now, generation, "hello", out);
            return;
        };
        let offered = hello.protocol;
        let Some(protocol) = VersionRange::OURS.common(offered) else {
            let (ours, VersionRange { min, max }) = (VersionRange::OURS, offered);
            let error = format!(
                "it speaks the child protocol {min} to {max}, this supervisor {} to {}: upgrade the other of the two",
                ours.min, ours.max
            );
            self.refuse(now, generation, Failure::not_ready(error), out);
            return;
        };
        let (takes_over, flush) = match &self.phase {
            Phase::Down { holder: Holder::Dead { generation, flush_at }, .. } => (Some(*generation), *flush_at <= now),
            Phase::Down { holder: Holder::StandIn { .. } | Holder::Nobody, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Serving { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => (None, false),
        };
        self.prepare_gro(out);
        let older_live = self.children.len() > 1;
        let peers = self.children.iter().filter(|(other, child)| **other != generation && child.can_be_peered());
        let links = peers.map(|(other, _)| *other).collect();
        if let Some(child) = self.children.get_mut(&generation) {
            child.about = Some(About {
                program: hello.program,
                version: hello.version,
                drain_timeout: hello.drain_timeout_ms.map(Duration::from_millis),
                idle_timeout: hello.idle_timeout_ms.map(Duration::from_millis),
            });
            child.takes_over = takes_over;
        }
        if let Some(step) = self.step(generation) {
            *step = Step::Adopting;
        }
        out.push(Action::Adopt {
            generation,
            wanted: hello.listeners,
            protocol,
            gro: self.gro,
            older_live,
            ledger: hello.ledger,
            links,
            takes_over,
            flush,
        });
    }

    /// Tells a child that what it asks for can't be had.
    fn refuse(&mut self, now: Time, generation: Generation, failure: Failure, out: &mut Vec<Action>) {
        let told = self.tell(generation, ToChild::Refused { error: failure.reason.clone() }, out);
        self.end(now, generation, if told { End::Wait } else { End::Term }, out);
        self.candidate_failed(now, generation, failure, out);
    }

    fn more_time(&mut self, now: Time, generation: Generation, more: Duration) {
        let Some(child) = self.children.get_mut(&generation) else { return };
        match &mut child.state {
            State::Starting { deadline, limit, .. } => {
                *deadline = now.after(more.min(MORE_TIME)).min(*limit).max(*deadline);
            }
            State::Ready | State::Active | State::Standby | State::Draining { .. } | State::Ending { .. } => {}
        }
    }

    fn ready(&mut self, now: Time, generation: Generation, out: &mut Vec<Action>) {
        let Some(step) = self.step(generation) else { return };
        match step {
            // The child may be faster than the news that its sockets have been sent.
            Step::Adopting | Step::Adopted => {}
            Step::Spawning | Step::Greeting => {
                self.out_of_turn(now, generation, "ready", out);
                return;
            }
        }
        if let Some(child) = self.children.get_mut(&generation) {
            child.state = State::Ready;
        }
        if !self.gro {
            out.push(Action::Gro { on: false });
        }
        self.steer(out);
    }

    /// A message at the wrong time: before `ready` the child can't be relied on, later it does no harm.
    fn out_of_turn(&mut self, now: Time, generation: Generation, message: &str, out: &mut Vec<Action>) {
        let text = format!("said {message} out of turn");
        match self.standing(generation) {
            Standing::Candidate => {
                self.end(now, generation, End::Term, out);
                self.candidate_failed(now, generation, Failure::not_ready(text), out);
            }
            Standing::Probation | Standing::Active | Standing::Other => {
                out.push(warn(format!("generation {generation} {text}")));
            }
            Standing::Over => {}
        }
    }

    /// It says that it is not well, or that it ends.
    pub(super) fn unwell(
        &mut self,
        now: Time,
        generation: Generation,
        reason: String,
        how: End,
        out: &mut Vec<Action>,
    ) {
        match self.standing(generation) {
            Standing::Candidate => {
                self.end(now, generation, how, out);
                let verdict = match how {
                    End::Wait => Verdict::Own { first: generation },
                    End::Term | End::Group => Verdict::Status(exit::NOT_READY),
                };
                self.candidate_failed(now, generation, Failure { reason, status: None, verdict }, out);
            }
            Standing::Probation => self.roll_back(now, generation, reason, how, out),
            Standing::Active => self.replace(now, generation, reason, out),
            Standing::Other => {
                out.push(info(format!("generation {generation}: {reason}")));
                self.note_unwell(generation, reason);
            }
            Standing::Over => {}
        }
    }

    /// An active one is not well and nobody is on standby: an upgrade replaces it, once. Until then it serves as it can.
    pub(super) fn replace(&mut self, now: Time, generation: Generation, reason: String, out: &mut Vec<Action>) {
        out.push(warn(format!("generation {generation} is active and not well: {reason}")));
        let noted = self.note_unwell(generation, reason.clone());
        self.fail_probation(now, generation, reason, out);
        if !noted {
            self.upgrade_requested(now, None, false, out);
        }
    }

    /// Keeps what a child said about itself. Says whether it had said so before.
    fn note_unwell(&mut self, generation: Generation, reason: String) -> bool {
        self.children.get_mut(&generation).is_some_and(|child| child.unhealthy.replace(reason).is_some())
    }

    pub(super) fn garbage(&mut self, now: Time, generation: Generation, error: &str, out: &mut Vec<Action>) {
        match self.standing(generation) {
            Standing::Candidate => {
                self.end(now, generation, End::Term, out);
                let reason = format!("sent what is not a message: {error}");
                self.candidate_failed(now, generation, Failure::not_ready(reason), out);
            }
            Standing::Probation | Standing::Active | Standing::Other => {
                let Some(child) = self.children.get_mut(&generation) else { return };
                match child.channel {
                    Channel::Open => {
                        child.channel = Channel::Garbled;
                        out.push(warn(format!("generation {generation} sent what is not a message: {error}")));
                    }
                    Channel::Garbled | Channel::Lost { .. } => {}
                }
            }
            Standing::Over => {}
        }
    }

    pub(super) fn channel_lost(&mut self, now: Time, generation: Generation, error: String, out: &mut Vec<Action>) {
        let Some(child) = self.children.get_mut(&generation) else { return };
        match child.channel {
            Channel::Open | Channel::Garbled => {}
            Channel::Lost { .. } => return,
        }
        let log = match child.state {
            // It ends, or is about to fail for this reason.
            State::Starting { .. } | State::Ending { .. } => false,
            State::Ready | State::Active | State::Standby | State::Draining { .. } => true,
        };
        let before = child.may_answer();
        let unacknowledged = child.pending.take().is_some();
        let stopped = child.may_answer() != before;
        if log {
            out.push(warn(format!("generation {generation} can't be told anything any more: {error}")));
        }
        child.channel = Channel::Lost { error, exit_by: now.after(ACKNOWLEDGE) };
        if unacknowledged {
            // For one that drains this was its order to.
            self.drain_by_signal(generation, out);
        }
        if stopped {
            self.counters_changed(generation, out);
        }
    }

    fn standing(&self, generation: Generation) -> Standing {
        let Some(child) = self.children.get(&generation) else { return Standing::Over };
        match child.state {
            State::Starting { .. } | State::Ready => Standing::Candidate,
            State::Active => match &self.phase {
                Phase::Serving { upgrade: Some(Upgrade { stage: Stage::Probation { .. }, .. }), .. }
                    if self.standby().is_some() =>
                {
                    Standing::Probation
                }
                Phase::Serving { .. } => Standing::Active,
                Phase::Idle
                | Phase::First { .. }
                | Phase::Down { .. }
                | Phase::Stopping { .. }
                | Phase::Leaving { .. }
                | Phase::Ended => Standing::Other,
            },
            State::Standby | State::Draining { .. } => Standing::Other,
            State::Ending { .. } => Standing::Over,
        }
    }

    /// How far a starting generation is.
    fn step(&mut self, generation: Generation) -> Option<&mut Step> {
        let child: &mut Child = self.children.get_mut(&generation)?;
        match &mut child.state {
            State::Starting { step, .. } => Some(step),
            State::Ready | State::Active | State::Standby | State::Draining { .. } | State::Ending { .. } => None,
        }
    }
}
