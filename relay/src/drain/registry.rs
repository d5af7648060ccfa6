//! Who is connected, who has been told to go, and whether anybody is left.

use super::{Clamped, Plan, Purpose, Slot, Turn};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// All connections of the process, from their first accepted packet to their end, over all workers and listeners.
///
/// Its lock is taken when a connection comes, changes or goes, never for traffic.
#[derive(Debug)]
pub struct Registry {
    state: Mutex<State>,
    /// When the last session of a drain is closed; `None` while there is no drain.
    deadline: watch::Sender<Option<Instant>>,
    /// Told when the last connection has gone.
    empty: Notify,
    /// Told at each change of [`Counts`].
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    sessions: BTreeMap<u64, Entry>,
    drain: Option<Plan>,
    /// A drain was reported complete: the process ends, and takes on nobody.
    ended: bool,
    counts: Counts,
}

#[derive(Debug)]
struct Entry {
    orders: watch::Sender<Option<Slot>>,
    told: bool,
    purpose: Purpose,
    came: Instant,
}

/// Counters of the process since its start; `sessions` and `setup` are of this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that are open.
    pub sessions: u64,
    /// Connections in setup.
    pub setup: u64,
    /// Setups completed.
    pub handshakes: u64,
    /// Sessions that were told to go.
    pub told: u64,
    /// Told sessions that left by themselves.
    pub left: u64,
    /// Sessions closed by a deadline.
    pub forced: u64,
}

/// A drain that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// How many sessions it found.
    pub sessions: usize,
    /// When the last of them is closed.
    pub deadline: Instant,
    /// Whether its spread had to be clamped.
    pub clamped: Option<Clamped>,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself: its client closed it or was lost.
    Left,
    /// Closed by the deadline of a drain.
    Forced,
}

impl Registry {
    /// Nobody is connected.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            deadline: watch::Sender::new(None),
            empty: Notify::new(),
            changed: Notify::new(),
        })
    }

    /// A connection has begun its setup; it counts until the returned value is dropped or becomes a session. `None`:
    /// [`Self::drained`] has returned, and nobody would serve it.
    #[must_use]
    pub fn setup(self: &Arc<Self>) -> Option<Setup> {
        self.update(|state| {
            if state.ended {
                return None;
            }
            state.counts.setup += 1;
            Some(Setup { registry: self.clone(), counted: true })
        })
    }

    /// Begins a drain, or brings the one under way forward: what an earlier drain asked sooner, it still asks. `switched`:
    /// when another generation took over, if one has. `dialed`: this relay has dialed others.
    pub fn drain(
        &self,
        now: Instant,
        timeout: Duration,
        spread: Option<Duration>,
        switched: Option<Instant>,
        dialed: bool,
    ) -> Begun {
        let (begun, deadline) = self.update(|state| {
            // The youngest first, within a turn.
            let mut turns: Vec<_> = state.sessions.values().rev().map(|entry| (entry.turn(switched), entry)).collect();
            turns.sort_by_key(|(turn, _)| *turn);
            let all: Vec<_> = turns.iter().map(|(turn, _)| *turn).collect();
            let (plan, clamped) = Plan::new(now, timeout, spread, &all, switched.is_some(), dialed);
            for (rank, (turn, entry)) in turns.iter().enumerate() {
                entry.order(plan.slot(rank, *turn));
            }
            let kept = state.drain.filter(|earlier| earlier.deadline() <= plan.deadline()).unwrap_or(plan);
            state.drain = Some(kept);
            let begun = Begun { sessions: state.sessions.len(), deadline: kept.deadline(), clamped };
            (begun, kept.deadline())
        });
        self.deadline.send_replace(Some(deadline));
        self.empty.notify_waiters();
        begun
    }

    /// When the sessions that this relay has dialed are told that it drains; `None`: there is no drain.
    #[must_use]
    pub fn tells_dialed(&self) -> Option<Instant> {
        self.lock().drain.map(|plan| plan.dialed())
    }

    /// Ends a drain: sessions that have not been told yet stay. Those that have been told keep their deadline, which
    /// they know.
    pub fn undrain(&self) {
        self.update(|state| {
            state.drain = None;
            for entry in state.sessions.values().filter(|entry| !entry.told) {
                entry.orders.send_replace(None);
            }
        });
        self.deadline.send_replace(None);
    }

    /// Waits until a drain is under way and nobody is left; from then on nobody is taken on.
    pub async fn drained(&self) {
        loop {
            let empty = self.empty.notified();
            tokio::pin!(empty);
            // Registered before looking, so that the last connection can't go unnoticed in between.
            empty.as_mut().enable();
            {
                let mut state = self.lock();
                if state.drain.is_some() && state.counts.sessions == 0 && state.counts.setup == 0 {
                    state.ended = true;
                    return;
                }
            }
            empty.await;
        }
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Waits for the next change of the counters. A change while nobody waits is remembered, once.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// When connections in setup are cut off: the deadline of the drain under way.
    #[must_use]
    pub fn deadline(&self) -> watch::Receiver<Option<Instant>> {
        self.deadline.subscribe()
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let before = state.counts;
        let result = change(&mut state);
        let counts = state.counts;
        drop(state);
        if counts != before {
            self.changed.notify_one();
            if counts.sessions == 0 && counts.setup == 0 {
                self.empty.notify_waiters();
            }
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, and counters are right after each statement anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn turn(&self, switched: Option<Instant>) -> Turn {
        Turn::of(self.purpose, self.came, switched)
    }

    fn order(&self, slot: Slot) {
        self.orders.send_modify(|order| *order = Some(order.map_or(slot, |earlier| earlier.sooner(slot))));
    }
}

/// A connection in setup. Dropping it counts it as gone.
#[derive(Debug)]
pub struct Setup {
    registry: Arc<Registry>,
    counted: bool,
}

impl Setup {
    /// The setup is complete: it is a session from now on. In a drain it is told at once, with what is left.
    #[must_use]
    pub fn open(mut self, now: Instant, purpose: Purpose) -> Open {
        self.counted = false;
        let (id, orders) = self.registry.update(|state| {
            state.counts.setup -= 1;
            state.counts.sessions += 1;
            state.counts.handshakes += 1;
            let id = state.next;
            state.next += 1;
            let (sender, orders) = watch::channel(state.drain.map(|plan| plan.late(now)));
            state.sessions.insert(id, Entry { orders: sender, told: false, purpose, came: now });
            (id, orders)
        });
        Open { registry: self.registry.clone(), id, orders }
    }

    /// Waits until the deadline of a drain, if one comes.
    pub async fn cut_off(&self) {
        let mut deadline = self.registry.deadline();
        loop {
            let at = *deadline.borrow_and_update();
            tokio::select! {
                () = sleep_until(at) => return,
                // The registry, which owns the sender, lives as long as this.
                _ = deadline.changed() => {}
            }
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if self.counted {
            self.registry.update(|state| state.counts.setup -= 1);
        }
    }
}

/// An open session. Dropping it counts it as gone.
#[derive(Debug)]
pub struct Open {
    registry: Arc<Registry>,
    id: u64,
    orders: watch::Receiver<Option<Slot>>,
}

impl Open {
    /// Its orders: `None` while it may stay.
    #[must_use]
    pub fn orders(&self) -> Option<Slot> {
        *self.orders.borrow()
    }

    /// Waits until its orders change.
    pub async fn changed(&mut self) {
        // The sender goes only with this session's entry, which lives as long as `self`.
        drop(self.orders.changed().await);
    }

    /// Marks it as told, if its orders still stand and it was not told before; gives the time it then has to leave.
    #[must_use]
    pub fn tell(&self, now: Instant) -> Option<Duration> {
        self.registry.update(|state| {
            let entry = state.sessions.get_mut(&self.id)?;
            let slot = *entry.orders.borrow();
            let slot = slot.filter(|slot| !entry.told && slot.tell <= now && now < slot.close)?;
            entry.told = true;
            state.counts.told += 1;
            Some(slot.close - now)
        })
    }

    /// It has ended.
    pub fn end(self, ending: Ending) {
        self.registry.update(|state| match ending {
            Ending::Forced => state.counts.forced += 1,
            Ending::Left if state.sessions.get(&self.id).is_some_and(|entry| entry.told) => state.counts.left += 1,
            Ending::Left => {}
        });
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.registry.update(|state| {
            state.sessions.remove(&self.id);
            state.counts.sessions -= 1;
        });
    }
}

/// Sleeps until an instant; for ever when there is none.
pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
