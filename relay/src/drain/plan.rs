//! When each session of a drain is told to go, and when it is closed: arithmetic, without clock or task.

use std::time::{Duration, Instant};

/// GOAWAYs per second when no spread is asked for: a steady rate that a successor's handshake path takes easily.
pub const AUTO_RATE: u32 = 1_000;

/// Most of the timeout that the GOAWAYs may be spread over, in percent: the rest is what the last one told has to leave.
pub const SPREAD_LIMIT: u32 = 80;

/// How far apart the steps are in which neighbours are told, when another generation has taken over.
///
/// First the clients, then the relays that have dialed this one, then those that it has dialed: the successor has both ends of
/// a path by the time that media move to it, and what passes moves once. A neighbour that is upgraded at the same time has
/// two generations here; the new one, which has come a moment ago, is told with the clients, and reaches the successor
/// before the old one looks for media there.
pub const STEP: Duration = Duration::from_secs(1);

/// The most of the timeout that a [`STEP`] may take, in percent.
pub const STEP_LIMIT: u32 = 5;

/// Who came so long before the switch, or after it, came about then: perhaps to this generation by mistake.
pub const ABOUT: Duration = Duration::from_secs(5);

/// Longest drain timeout that is distinguished; a longer one is as good as this, and instants must not overflow.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// When one session is told to go, and when it is closed if it is still there. A session whose `close` has come is
/// closed, told or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When its GOAWAY is sent.
    pub tell: Instant,
    /// When it is closed by force.
    pub close: Instant,
}

impl Slot {
    /// The slot of a session to be closed now, without a GOAWAY.
    #[must_use]
    pub fn at_once(now: Instant) -> Self {
        Self { tell: now, close: now }
    }

    /// What two drains together ask of one session: the earlier of each, since nothing takes a drain back.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        Self { tell: self.tell.min(other.tell), close: self.close.min(other.close) }
    }
}

/// What there may be behind a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It publishes or subscribes, not both: a client.
    Leaf,
    /// It may do both, so it may be a relay, with others behind it.
    Through,
}

/// The schedule of one drain.
///
/// The GOAWAYs go out at a steady rate over `spread`. Each session may then stay for `timeout − spread`, so that the
/// forced closes are spread just as the GOAWAYs were, and the last of them falls on the deadline. After a switch, sessions
/// that may lead to other relays come a [`STEP`] later, except for those that came [`ABOUT`] the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    start: Instant,
    timeout: Duration,
    spread: Duration,
    sessions: u32,
    /// When another generation took over; `None`: nobody has.
    switched: Option<Instant>,
}

/// A spread that does not fit its timeout, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clamped {
    /// What was asked for, or what the automatic rate comes to.
    pub asked: Duration,
    /// What is used: 80 % of the timeout.
    pub used: Duration,
}

impl Plan {
    /// Plans the drain of so many sessions, from `start` to at most `start + timeout`. `spread` is how long the GOAWAYs
    /// are spread over; `None`: as [`AUTO_RATE`] makes it. `switched`: when another generation took over, if one has. Also
    /// says when the spread had to be clamped.
    #[must_use]
    pub fn new(
        start: Instant,
        timeout: Duration,
        spread: Option<Duration>,
        sessions: usize,
        switched: Option<Instant>,
    ) -> (Self, Option<Clamped>) {
        let timeout = timeout.min(LONGEST);
        let sessions = u32::try_from(sessions).unwrap_or(u32::MAX);
        let asked = spread.unwrap_or_else(|| Duration::from_secs(1) / AUTO_RATE * sessions);
        let limit = timeout / 100 * SPREAD_LIMIT;
        let clamped = (asked > limit).then_some(Clamped { asked, used: limit });
        (Self { start, timeout, spread: asked.min(limit), sessions, switched }, clamped)
    }

    /// When the last session is closed.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.start + self.timeout
    }

    /// How long the GOAWAYs take.
    #[must_use]
    pub fn spread(&self) -> Duration {
        self.spread
    }

    /// The slot of the session with this rank, counted from 0 over the sessions planned for, from the youngest on.
    #[must_use]
    pub fn slot(&self, rank: usize, reach: Reach, came: Instant) -> Slot {
        let sessions = self.sessions.max(1);
        let rank = u32::try_from(rank).unwrap_or(u32::MAX).min(sessions - 1);
        let tell = self.start + scaled(self.spread, rank, sessions) + self.later(reach, came);
        Slot { tell, close: (tell + (self.timeout - self.spread)).min(self.deadline()) }
    }

    /// When the sessions that this relay has dialed are told.
    #[must_use]
    pub fn dialed(&self) -> Instant {
        self.start + self.switched.map_or(Duration::ZERO, |_| 2 * self.step())
    }

    /// How much later such a session is told than a client of its rank.
    fn later(&self, reach: Reach, came: Instant) -> Duration {
        match (reach, self.switched) {
            (Reach::Through, Some(switched)) if came + ABOUT < switched => self.step(),
            (Reach::Leaf | Reach::Through, None | Some(_)) => Duration::ZERO,
        }
    }

    fn step(&self) -> Duration {
        STEP.min(self.timeout / 100 * STEP_LIMIT)
    }

    /// The slot of a session that comes after the drain has begun: told at once, with what is left of the timeout.
    #[must_use]
    pub fn late(&self, now: Instant) -> Slot {
        Slot { tell: now, close: self.deadline().max(now) }
    }
}

/// `whole × part / parts`, without the rounding of `whole / parts` adding up.
fn scaled(whole: Duration, part: u32, parts: u32) -> Duration {
    let nanos = whole.as_nanos() * u128::from(part) / u128::from(parts);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
