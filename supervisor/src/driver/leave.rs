//! Leaving for another supervisor to go on, which needs the fd store to have everything; and what there is to know of the
//! store.

use super::{Driver, FAREWELL, News};
use crate::core::{Event, Time};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{sleep, timeout};

/// A service manager that has not confirmed by then hangs, or knows no barriers (systemd before 246).
const CONFIRM_LIMIT: Duration = Duration::from_secs(5);

/// Whether somebody wants us to leave.
#[derive(Debug, Default)]
pub(super) enum Leave {
    /// Nobody.
    #[default]
    Unasked,
    /// Once the store has confirmed everything; a barrier is under way or to be set.
    Wanted { until: Time, barrier: bool },
}

impl Driver {
    /// SIGRTMIN+1.
    pub(super) fn leave_wanted(&mut self) {
        match self.leave {
            Leave::Wanted { .. } => {}
            Leave::Unasked => self.leave = Leave::Wanted { until: self.now().after(CONFIRM_LIMIT), barrier: false },
        }
    }

    /// Goes on with leaving. To be called when the core has been told everything.
    pub(super) fn attend_to_leave(&mut self) {
        let Leave::Wanted { until, barrier } = self.leave else { return };
        self.persist();
        let impossible = !self.notify.wanted()
            || self.book.trouble().is_some()
            || self.store.trouble().is_some()
            || self.now() >= until;
        let stored = match (impossible, self.store.is_confirmed()) {
            (true, _) => false,
            (false, true) => true,
            (false, false) if barrier => return,
            (false, false) => {
                match self.notify.barrier() {
                    Ok(barrier) => {
                        self.leave = Leave::Wanted { until, barrier: true };
                        self.await_barrier(barrier);
                        return;
                    }
                    Err(error) => tracing::warn!("the fd store can't be asked: {error}"),
                }
                false
            }
        };
        self.leave = Leave::Unasked;
        self.events.push_back(Event::Leave { stored });
    }

    fn await_barrier(&self, barrier: OwnedFd) {
        let (told, news) = (self.store.told(), self.news.0.clone());
        tokio::spawn(async move {
            let through = timeout(CONFIRM_LIMIT, passed(barrier)).await.is_ok();
            // The loop has ended: nobody asks any more.
            let _ = news.send(News::Stored(through.then_some(told))).await;
        });
    }

    /// A barrier is through, or will never be.
    pub(super) fn stored(&mut self, confirmed: Option<u64>) {
        match confirmed {
            Some(changes) => self.store.confirm(changes),
            None => tracing::warn!("the service manager does not confirm what it was told to store"),
        }
        if let Leave::Wanted { until, .. } = self.leave {
            let until = if confirmed.is_some() { until } else { self.now() };
            self.leave = Leave::Wanted { until, barrier: false };
        }
    }

    /// What the store can hold is known now, or will never be.
    pub(super) fn capacity_answered(&mut self, answer: Result<usize, String>) {
        match answer {
            Ok(capacity) => self.store.holds(capacity),
            Err(why) => tracing::info!("how many descriptors the service manager keeps is not known: {why}"),
        }
    }

    /// Says once when the store turns out to be too small.
    pub(super) fn look_at_store(&mut self) {
        let trouble = self.store.trouble().filter(|_| self.notify.wanted());
        if let Some(trouble) = trouble.as_ref().filter(|_| self.store_trouble.is_none()) {
            tracing::warn!("{trouble}");
        }
        self.store_trouble = trouble;
    }

    /// Waits until the service manager has handled all that it was told: it may ask the kernel who we are, which does not
    /// work once we are gone.
    pub(super) async fn last_words(&mut self) {
        let Ok(barrier) = self.notify.barrier() else { return };
        let told = async {
            while let Some(wait) = self.notify.flush() {
                sleep(wait).await;
            }
            passed(barrier).await;
        };
        if timeout(FAREWELL, told).await.is_err() {
            tracing::warn!("the service manager has not handled everything that it was told");
        }
    }
}

/// Until the other end is closed, by who was told so behind everything else.
async fn passed(barrier: OwnedFd) {
    let Ok(barrier) = Receiver::from_owned_fd(barrier) else { return };
    // Nothing is ever written: what can be read is the end.
    let _ = barrier.readable().await;
}
