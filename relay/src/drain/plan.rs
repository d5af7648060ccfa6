//! When each session of a drain is told to go, and when it is closed: arithmetic, without clock or task.

use std::time::{Duration, Instant};

/// GOAWAYs per second when no spread is asked for: a steady rate that a successor's handshake path takes easily.
pub const AUTO_RATE: u32 = 1_000;

/// Most of the timeout that the GOAWAYs may be spread over, in percent: the rest is what the last one told has to leave.
pub const SPREAD_LIMIT: u32 = 80;

/// From the first GOAWAY of one [`Turn`] to the first of the next, when another generation has taken over.
pub const STEP: Duration = Duration::from_secs(1);

/// The most of the timeout that a [`STEP`] may take, in percent.
pub const STEP_LIMIT: u32 = 2;

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

/// What a session is there for, as its client has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To publish.
    Publish,
    /// To subscribe.
    Subscribe,
    /// Both: a relay, or a client that does both.
    Both,
}

/// When a session is told, compared with others: each moves to a place that has by then what it needs, and as little as
/// possible moves at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// Who may be a relay and came [`ABOUT`] the switch. A neighbour that is upgraded at the same time has two generations
    /// here; this is the new one, and has to be at our successor before anybody looks for media there.
    Astray,
    /// Publishers.
    Publisher,
    /// Subscribers.
    Subscriber,
    /// Who may be a relay and has dialed this one. If it drains too, its own clients have left it by now.
    Neighbour,
    /// Relays that this one has dialed. The successor has dialed them itself by now, and has what the others give.
    Dialed,
}

impl Turn {
    /// In their order.
    const ALL: [Self; 5] = [Self::Astray, Self::Publisher, Self::Subscriber, Self::Neighbour, Self::Dialed];

    /// Of a session that came then, if another generation took over at `switched`.
    #[must_use]
    pub fn of(purpose: Purpose, came: Instant, switched: Option<Instant>) -> Self {
        match purpose {
            Purpose::Publish => Self::Publisher,
            Purpose::Subscribe => Self::Subscriber,
            Purpose::Both if switched.is_some_and(|switched| came + ABOUT >= switched) => Self::Astray,
            Purpose::Both => Self::Neighbour,
        }
    }
}

/// The schedule of one drain.
///
/// The GOAWAYs go out at a steady rate over `spread`. Each session may then stay for `timeout − spread`, so that the
/// forced closes are spread just as the GOAWAYs were, and the last of them falls on the deadline. After a switch, a [`STEP`]
/// lies between one [`Turn`] and the next that anybody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    start: Instant,
    timeout: Duration,
    spread: Duration,
    sessions: u32,
    /// How much later each turn comes than it would without steps.
    later: [Duration; Turn::ALL.len()],
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
    /// Plans the drain of sessions with these turns, from `start` to at most `start + timeout`. `spread` is how long the
    /// GOAWAYs are spread over; `None`: as [`AUTO_RATE`] makes it. `switched`: another generation has taken over. `dialed`:
    /// this relay has dialed others. Also says when the spread had to be clamped.
    #[must_use]
    pub fn new(
        start: Instant,
        timeout: Duration,
        spread: Option<Duration>,
        turns: &[Turn],
        switched: bool,
        dialed: bool,
    ) -> (Self, Option<Clamped>) {
        let timeout = timeout.min(LONGEST);
        let sessions = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        let asked = spread.unwrap_or_else(|| Duration::from_secs(1) / AUTO_RATE * sessions);
        let limit = timeout / 100 * SPREAD_LIMIT;
        let clamped = (asked > limit).then_some(Clamped { asked, used: limit });
        let step = if switched { STEP.min(timeout / 100 * STEP_LIMIT) } else { Duration::ZERO };
        let mut later = [Duration::ZERO; Turn::ALL.len()];
        let mut next = Duration::ZERO;
        for turn in Turn::ALL {
            later[turn as usize] = next;
            if turns.contains(&turn) || turn == Turn::Dialed && dialed {
                next += step;
            }
        }
        (Self { start, timeout, spread: asked.min(limit), sessions, later }, clamped)
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

    /// The slot of the session with this rank, counted from 0 over the sessions planned for.
    #[must_use]
    pub fn slot(&self, rank: usize, turn: Turn) -> Slot {
        let sessions = self.sessions.max(1);
        let rank = u32::try_from(rank).unwrap_or(u32::MAX).min(sessions - 1);
        let tell = self.start + scaled(self.spread, rank, sessions) + self.later[turn as usize];
        Slot { tell, close: (tell + (self.timeout - self.spread)).min(self.deadline()) }
    }

    /// When the sessions that this relay has dialed are told.
    #[must_use]
    pub fn dialed(&self) -> Instant {
        self.start + self.later[Turn::Dialed as usize]
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
