//! The lifecycle as a plain state machine: no clock, socket, process, async or environment.

pub mod event;
pub mod snapshot;
mod time;

pub use event::{Action, Deny, Event, ExitStatus, Kill, Note, Outcome, RequestId, Settings, SpawnError, Steering};
pub use snapshot::Snapshot;
pub use time::Time;

/// The lifecycle of all generations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Core {
    settings: Settings,
}

impl Core {
    /// A lifecycle in which nothing has been started. `seed` decides the jitter of the respawn delays, nothing else.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let _ = seed;
        Self { settings }
    }

    /// Takes in one fact and appends the orders that follow from it, in the order in which they are to be performed.
    ///
    /// Due deadlines are handled too, whatever the event. `now` never goes back.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        let _ = (now, event, out, &self.settings);
    }

    /// When to call [`Core::handle`] with [`Event::Tick`] at the latest; later than the `now` of the last call.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// What there is to show.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let _ = now;
        Snapshot {
            phase: snapshot::PhaseView::Idle,
            active: None,
            generations: Vec::new(),
            upgrade: None,
            queued: false,
            last_failure: None,
            gro: true,
        }
    }
}
