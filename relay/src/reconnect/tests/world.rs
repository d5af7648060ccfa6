//! A world of relays, and one peer that finds its way by the policy.

use crate::reconnect::{
    self, Action, Direction, Event, Failure, Id, Luck, Manner, Reconnect, Refused, Report, STABLE, Settings,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A relay, by its number.
pub(super) type Place = usize;

impl reconnect::Place for Place {
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

/// What a relay does with those who come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Serves for ever.
    Serve,
    /// Says that it restarts, after so long.
    Restart(Life),
    /// Sends to another one, after so long.
    Redirect(Place, Life),
    /// Names a place that is not allowed, after so long.
    Mislead(Life),
    /// Closes without a GOAWAY, after so long.
    Close(Life),
    /// Fails the dial.
    Fail,
    /// Refuses for good.
    Refuse,
}

/// How long a session lives before something happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Not healthy.
    Short,
    /// Healthy.
    Healthy,
    /// Healthy for so long that a chain ends.
    Long,
}

impl Life {
    pub(super) const ALL: [Self; 3] = [Self::Short, Self::Healthy, Self::Long];

    fn time(self, settings: &Settings) -> Duration {
        match self {
            Self::Short => Duration::from_millis(1),
            Self::Healthy => settings.backoff.initial + Duration::from_millis(1),
            Self::Long => STABLE.max(settings.backoff.initial) + Duration::from_millis(1),
        }
    }
}

/// How long a dial takes.
const DIAL: Duration = Duration::from_millis(1);
/// When a relay closes a session that it has told to go.
pub(super) const DRAIN: Duration = Duration::from_secs(15);

/// What happened in a world, by the time since its beginning.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) dials: Vec<(Duration, Place)>,
    pub(super) reports: Vec<(Duration, Report)>,
    /// When no session served, after the first one: from, to.
    pub(super) gaps: Vec<(Duration, Duration)>,
    /// When it left for good.
    pub(super) ended: Option<(Duration, Option<Failure>)>,
    /// Sessions that the policy closed.
    pub(super) retired: usize,
}

impl History {
    pub(super) fn waits(&self) -> usize {
        self.reports.iter().filter(|(_, report)| matches!(report, Report::Waiting(_))).count()
    }

    /// The most dials in any span of one second.
    pub(super) fn busiest_second(&self) -> usize {
        let within = |from: Duration| {
            self.dials.iter().filter(move |(at, _)| (from..from + Duration::from_secs(1)).contains(at)).count()
        };
        self.dials.iter().map(|(at, _)| within(*at)).max().unwrap_or(0)
    }
}

/// Lives in a world for so long, and checks what must hold in every one.
pub(super) fn live(
    mut does: impl FnMut(Place, Duration) -> Does,
    settings: Settings,
    luck: Luck,
    time: Duration,
) -> History {
    let start = Instant::now();
    let mut policy = Reconnect::new(settings, 0);
    let mut history = History::default();
    let mut due: BTreeMap<(Instant, u64), Event<Place>> = BTreeMap::new();
    let mut open: Vec<Id> = Vec::new();
    let mut dialing: BTreeMap<Id, Place> = BTreeMap::new();
    let mut order = 0;
    let mut later = |due: &mut BTreeMap<_, _>, at, event| {
        order += 1;
        due.insert((at, order), event);
    };
    let mut now = start;
    let mut actions = policy.begin(now);
    let mut dark: Option<Duration> = None;
    loop {
        let since = now - start;
        for action in actions.drain(..) {
            match action {
                Action::Dial(id, place, manner) => {
                    history.dials.push((since, place));
                    dialing.insert(id, place);
                    assert!(dialing.len() == 1, "two dials at a time: {history:?}");
                    assert_eq!(manner == Manner::Plain, open.is_empty(), "{history:?}");
                    let event = match does(place, since) {
                        Does::Restart(Life::Short) if manner == Manner::Careful => {
                            Event::Goaway(id, Direction::Restart)
                        }
                        Does::Redirect(to, Life::Short) if manner == Manner::Careful => {
                            Event::Goaway(id, Direction::Elsewhere(to))
                        }
                        Does::Mislead(Life::Short) if manner == Manner::Careful => {
                            Event::Goaway(id, Direction::Refused(Refused::Host))
                        }
                        Does::Fail => Event::Failed(id, Failure::Passing("fails".to_owned())),
                        Does::Refuse => Event::Failed(id, Failure::Final("refuses".to_owned())),
                        Does::Serve | Does::Restart(_) | Does::Redirect(..) | Does::Mislead(_) | Does::Close(_) => {
                            Event::Established(id)
                        }
                    };
                    later(&mut due, now + DIAL, event);
                }
                Action::Retire(id) => {
                    assert!(open.contains(&id) && open.len() > 1, "gave up the only session: {history:?}");
                    open.retain(|other| *other != id);
                    history.retired += 1;
                }
                Action::Report(report) => history.reports.push((since, report)),
                Action::End(why) => {
                    history.ended = Some((since, why));
                    return history;
                }
            }
        }
        assert!(open.len() <= 3, "{} sessions: {history:?}", open.len());
        assert!(policy.deadline().is_none_or(|deadline| deadline > now), "it would spin: {history:?}");
        if dark.is_some() != (open.is_empty() && !history.dials.is_empty()) {
            match dark.take() {
                Some(from) => history.gaps.push((from, since)),
                None => dark = Some(since),
            }
        }
        let next = due.first_key_value().map(|((at, _), _)| *at);
        let Some(at) = next.into_iter().chain(policy.deadline()).min().filter(|at| *at <= start + time) else {
            history.gaps.extend(dark.map(|from| (from, time)));
            return history;
        };
        now = at;
        let event = match due.first_entry().filter(|first| first.key().0 <= now) {
            Some(first) => first.remove(),
            None => Event::Wake,
        };
        // A session that the policy has closed says no more; but what the policy is to do at that very moment remains.
        let is_over = match &event {
            Event::Goaway(id, _) => !open.contains(id) && !dialing.contains_key(id),
            Event::Closed(id, _) => !open.contains(id),
            Event::Established(_) | Event::Failed(..) | Event::Wake => false,
        };
        let event = if is_over { Event::Wake } else { event };
        match &event {
            Event::Established(id) => {
                open.push(*id);
                let place = dialing.remove(id).expect("it was dialed");
                let told = |life: Life| now + life.time(&settings);
                let (at, direction) = match does(place, now - start) {
                    Does::Serve | Does::Fail | Does::Refuse => (now, None),
                    Does::Restart(life) => (told(life), Some(Direction::Restart)),
                    Does::Redirect(to, life) => (told(life), Some(Direction::Elsewhere(to))),
                    Does::Mislead(life) => (told(life), Some(Direction::Refused(Refused::Host))),
                    Does::Close(life) => {
                        later(&mut due, told(life), Event::Closed(*id, Failure::Passing("lost".to_owned())));
                        (now, None)
                    }
                };
                if let Some(direction) = direction {
                    later(&mut due, at, Event::Goaway(*id, direction));
                    later(&mut due, at + DRAIN, Event::Closed(*id, Failure::Passing("drained".to_owned())));
                }
            }
            Event::Failed(id, _) => {
                dialing.remove(id);
            }
            Event::Goaway(id, _) => {
                dialing.remove(id);
            }
            Event::Closed(id, _) => open.retain(|other| other != id),
            Event::Wake => {}
        }
        actions = policy.handle(now, event, luck);
    }
}
