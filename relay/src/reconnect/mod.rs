//! What to do about a peer's GOAWAY, a lost session, a dial that failed: a pure policy, without clock, task or socket.
//!
//! ```text
//!            ┌──────────────── wait over ────────────────┐
//!            ▼                                           │
//! Dialing ──established──► Serving ──GOAWAY, close──► Waiting ──time is up──► Resting ──► Dialing (at home)
//!    │                       │    (or Dialing at once)    ▲
//!    └────── failed ─────────┼────────────────────────────┘
//!                            └── GOAWAY that is waited out: serves until it is closed
//! ```
//!
//! A **sequence** goes from a dial at the configured place to a healthy session, or to the error that it ends with. The
//! **chain** is the run of places that redirected us away. `docs/design/dialing.md` has the reasons.

mod backoff;
mod chain;
mod phase;
mod redirect;
#[cfg(test)]
mod tests;
mod words;

pub use backoff::{Backoff, Luck};
pub use redirect::{DEFAULT_PORT, Direction, Redirect, Refused, SCHEMES, same_place};
pub use words::{Action, Error, Event, Failure, Id, Manner, Report, Restart, Settings};

use backoff::Rest;
use chain::Chain;
use phase::{Phase, Standing, Told};
use std::mem;
use std::time::{Duration, Instant};

/// A session that lived this long ends a chain of redirects, and the rests between sequences begin small again.
pub const STABLE: Duration = Duration::from_secs(10);

/// Where a dial can go.
pub trait Place: Clone {
    /// Whether both lead to the same peer, however they are written.
    fn is(&self, other: &Self) -> bool;
}

impl Place for url::Url {
    /// A redirect brings credentials of its own, so a URL never comes back as it was: [`same_place`].
    fn is(&self, other: &Self) -> bool {
        same_place(self, other)
    }
}

/// The link to one peer.
#[derive(Clone, Debug)]
pub struct Reconnect<P> {
    settings: Settings,
    /// The configured place, where each sequence begins.
    home: P,
    /// Where the next dial goes: home, or where a redirect has assigned us.
    here: P,
    phase: Phase,
    /// Sessions that were told to go and serve on: the one that served longest, and the last.
    told: Vec<Told>,
    /// When the sequence began, for the time that it may take; `None` after a healthy session.
    since: Option<Instant>,
    backoff: Duration,
    /// A session that was not healthy has been left at once since the last one that was.
    hurried: bool,
    chain: Chain<P>,
    rest: Rest,
    ids: u64,
}

impl<P: Place> Reconnect<P> {
    /// A link that has not begun.
    #[must_use]
    pub fn new(settings: Settings, home: P) -> Self {
        Self {
            settings,
            here: home.clone(),
            home,
            phase: Phase::Idle,
            told: Vec::new(),
            since: None,
            backoff: settings.backoff.initial,
            hurried: false,
            chain: Chain::default(),
            rest: Rest::default(),
            ids: 0,
        }
    }

    /// Begins the first sequence.
    pub fn begin(&mut self, now: Instant) -> Vec<Action<P>> {
        let mut out = Vec::new();
        self.sequence(now, &mut out);
        out
    }

    /// When to call [`Self::handle`] with [`Event::Wake`], if nothing happens before; `None`: not at all.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let retire = self.told.iter().filter_map(|told| told.retire);
        retire.chain(self.phase_deadline()).min()
    }

    /// What to do about an event. One that concerns a session or dial which is no longer of interest does nothing.
    pub fn handle(&mut self, now: Instant, event: Event<P>, luck: Luck) -> Vec<Action<P>> {
        let mut out = Vec::new();
        self.settle(now);
        match event {
            Event::Established(id) => self.established(now, id),
            Event::Failed(id, failure) => self.failed(now, id, failure, luck, &mut out),
            Event::Goaway(id, direction) => self.goaway(now, id, direction, luck, &mut out),
            Event::Closed(id, failure) => self.closed(now, id, failure, luck, &mut out),
            Event::Wake => {}
        }
        self.due(now, &mut out);
        out
    }

    fn phase_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Idle | Phase::Dialing(_) => None,
            Phase::Waiting { until } | Phase::Resting { until } => Some(until),
            Phase::Serving { since, standing, .. } => match standing {
                Standing::Fresh => Some(since + self.settings.backoff.initial),
                Standing::Healthy => Some(since + STABLE.max(self.settings.backoff.initial)),
                Standing::Stable | Standing::ServingOut { .. } => None,
            },
        }
    }

    /// Lets the time that a session has lived count.
    fn settle(&mut self, now: Instant) {
        while let Phase::Serving { id, since, standing } = self.phase
            && self.phase_deadline().is_some_and(|deadline| deadline <= now)
        {
            let standing = if standing == Standing::Fresh { Standing::Healthy } else { Standing::Stable };
            if standing == Standing::Healthy {
                self.since = None;
                self.backoff = self.settings.backoff.initial;
                self.hurried = false;
                self.chain.healthy();
                let retire = since + self.settings.handover;
                self.told.iter_mut().for_each(|told| told.retire = Some(retire));
            } else {
                self.chain = Chain::default();
                self.rest = Rest::default();
            }
            self.phase = Phase::Serving { id, since, standing };
        }
    }

    /// Does what has become due.
    fn due(&mut self, now: Instant, out: &mut Vec<Action<P>>) {
        self.told.retain(|told| {
            let stays = told.retire.is_none_or(|retire| now < retire);
            if !stays {
                out.push(Action::Retire(told.id));
            }
            stays
        });
        match self.phase {
            Phase::Waiting { until } if until <= now => self.dial(now, out),
            Phase::Resting { until } if until <= now => self.sequence(now, out),
            Phase::Idle | Phase::Dialing(_) | Phase::Serving { .. } | Phase::Waiting { .. } | Phase::Resting { .. } => {
            }
        }
    }

    fn established(&mut self, now: Instant, id: Id) {
        if self.phase == Phase::Dialing(id) {
            self.phase = Phase::Serving { id, since: now, standing: Standing::Fresh };
        }
    }

    fn failed(&mut self, now: Instant, id: Id, failure: Failure, luck: Luck, out: &mut Vec<Action<P>>) {
        if self.phase == Phase::Dialing(id) {
            self.try_again(now, failure, luck, out);
        }
    }

    fn goaway(&mut self, now: Instant, id: Id, direction: Direction<P>, luck: Luck, out: &mut Vec<Action<P>>) {
        if self.phase == Phase::Dialing(id) {
            return self.reached_leaving(now, direction, luck, out);
        }
        let Phase::Serving { id: serving, standing, .. } = self.phase else { return };
        let healthy = match standing {
            Standing::Fresh => false,
            Standing::Healthy | Standing::Stable => true,
            Standing::ServingOut { .. } => return,
        };
        if id != serving {
            return;
        }
        if self.settings.once {
            return self.end(None, out);
        }
        match direction {
            Direction::Elsewhere(place) if !place.is(&self.here) => {
                self.leave(out);
                self.redirected(now, place, healthy, luck, out);
            }
            Direction::Elsewhere(_) | Direction::Restart => match (self.settings.restart, healthy) {
                (Restart::Redial | Restart::Handoff, true) => {
                    self.leave(out);
                    self.dial(now, out);
                }
                (Restart::Redial, false) => {
                    self.leave(out);
                    self.try_again(now, left_at_once(), luck, out);
                }
                // A careful dial costs nothing where it reaches the process that is leaving, and where that began to
                // leave only just now, it reaches the successor.
                (Restart::Handoff, false) if !self.hurried => {
                    self.hurried = true;
                    self.leave(out);
                    self.dial(now, out);
                }
                (Restart::Handoff, false) => {
                    self.leave(out);
                    self.try_again(now, left_at_once(), luck, out);
                }
                (Restart::Wait, _) => self.serve_out(healthy, out),
            },
            Direction::Refused(_) => self.serve_out(healthy, out),
        }
    }

    /// A dial has come to a peer that is leaving.
    fn reached_leaving(&mut self, now: Instant, direction: Direction<P>, luck: Luck, out: &mut Vec<Action<P>>) {
        match direction {
            Direction::Elsewhere(place) if !place.is(&self.here) => self.redirected(now, place, false, luck, out),
            Direction::Elsewhere(_) | Direction::Restart if self.settings.restart == Restart::Redial => {
                self.try_again(now, left_at_once(), luck, out);
            }
            Direction::Elsewhere(_) | Direction::Restart | Direction::Refused(_) => match self.told.pop() {
                Some(Told { id, since, .. }) => {
                    self.phase = Phase::Serving { id, since, standing: Standing::Healthy };
                    self.serve_out(true, out);
                }
                // It was closed meanwhile.
                None => self.try_again(now, left_at_once(), luck, out),
            },
        }
    }

    fn redirected(&mut self, now: Instant, to: P, healthy: bool, luck: Luck, out: &mut Vec<Action<P>>) {
        let from = mem::replace(&mut self.here, to.clone());
        match self.chain.follow(now, from, &to, healthy, &self.settings.backoff, luck) {
            chain::Follow::AtOnce => self.dial(now, out),
            chain::Follow::After(wait) => self.wait(now, wait, out),
            chain::Follow::Loop(time) => self.rest(now, Error::RedirectLoop(time), luck, out),
        }
    }

    fn closed(&mut self, now: Instant, id: Id, failure: Failure, luck: Luck, out: &mut Vec<Action<P>>) {
        if let Some(index) = self.told.iter().position(|told| told.id == id) {
            let told = self.told.remove(index);
            return self.told_closed(now, told, out);
        }
        let Phase::Serving { id: serving, since, standing } = self.phase else { return };
        if id != serving {
            return;
        }
        if self.settings.once {
            return self.end(Some(failure), out);
        }
        self.keep_told();
        let lived = now.saturating_duration_since(since) >= self.settings.backoff.initial;
        match standing {
            Standing::Fresh => {
                self.chain = Chain::default();
                self.try_again(now, failure, luck, out);
            }
            Standing::Healthy | Standing::Stable => {
                self.chain = Chain::default();
                match failure {
                    Failure::Final(_) => self.rest(now, Error::Refused(failure), luck, out),
                    Failure::Passing(_) => self.dial(now, out),
                }
            }
            // It said that it would close.
            Standing::ServingOut { healthy } if healthy || lived => self.dial(now, out),
            Standing::ServingOut { .. } => self.try_again(now, failure, luck, out),
        }
    }

    /// Its peer has closed a session that was told to go. When no other one serves, pauses are cut short: it was not made
    /// so lately that they protect the peer from anything.
    fn told_closed(&mut self, now: Instant, told: Told, out: &mut Vec<Action<P>>) {
        let lived = now.saturating_duration_since(told.since) >= self.settings.backoff.initial;
        if !lived || !self.told.is_empty() {
            return;
        }
        match self.phase {
            Phase::Waiting { .. } => self.dial(now, out),
            Phase::Resting { .. } => self.sequence(now, out),
            Phase::Idle | Phase::Dialing(_) | Phase::Serving { .. } => {}
        }
    }

    /// The current session goes on serving while another one is dialed.
    fn leave(&mut self, out: &mut Vec<Action<P>>) {
        let Phase::Serving { id, since, .. } = self.phase else { return };
        out.push(Action::Report(Report::Moving));
        if self.told.len() > 1 {
            out.push(Action::Retire(self.told.remove(1).id));
        }
        self.keep_told();
        self.told.push(Told { id, since, retire: None });
    }

    /// What was to retire in favour of the current session serves on, since that one is leaving or lost.
    fn keep_told(&mut self) {
        self.told.iter_mut().for_each(|told| told.retire = None);
    }

    fn serve_out(&mut self, healthy: bool, out: &mut Vec<Action<P>>) {
        if let Phase::Serving { standing, .. } = &mut self.phase {
            *standing = Standing::ServingOut { healthy };
            out.push(Action::Report(Report::ServingOut));
        }
    }

    /// After a failure: backs off, or ends the sequence when its time is up.
    fn try_again(&mut self, now: Instant, failure: Failure, luck: Luck, out: &mut Vec<Action<P>>) {
        if self.settings.once {
            return self.end(Some(failure), out);
        }
        if let Failure::Final(_) = failure {
            return self.rest(now, Error::Refused(failure), luck, out);
        }
        let since = *self.since.get_or_insert(now);
        match self.settings.backoff.timeout {
            Some(after) if since + after <= now => self.rest(now, Error::TimedOut { after, last: failure }, luck, out),
            Some(_) | None => {
                let wait = luck.jitter(self.backoff);
                self.backoff = self.settings.backoff.next(self.backoff);
                self.wait(now, wait, out);
            }
        }
    }

    fn wait(&mut self, now: Instant, wait: Duration, out: &mut Vec<Action<P>>) {
        out.push(Action::Report(Report::Waiting(wait)));
        self.phase = Phase::Waiting { until: now + wait };
    }

    fn rest(&mut self, now: Instant, error: Error, luck: Luck, out: &mut Vec<Action<P>>) {
        let rest = self.rest.next(luck);
        out.push(Action::Report(Report::Ended(error, rest)));
        self.phase = Phase::Resting { until: now + rest };
    }

    fn sequence(&mut self, now: Instant, out: &mut Vec<Action<P>>) {
        self.here = self.home.clone();
        self.since = None;
        self.backoff = self.settings.backoff.initial;
        self.chain = Chain::default();
        self.dial(now, out);
    }

    fn dial(&mut self, now: Instant, out: &mut Vec<Action<P>>) {
        self.since.get_or_insert(now);
        let id = Id(self.ids);
        self.ids += 1;
        self.phase = Phase::Dialing(id);
        let manner = if self.told.is_empty() { Manner::Plain } else { Manner::Careful };
        out.push(Action::Dial(id, self.here.clone(), manner));
    }

    fn end(&mut self, why: Option<Failure>, out: &mut Vec<Action<P>>) {
        self.phase = Phase::Idle;
        self.told.clear();
        out.push(Action::End(why));
    }
}

fn left_at_once() -> Failure {
    Failure::Passing("it is leaving".to_owned())
}
