//! Leaving for another supervisor to go on, which needs the fd store to have everything; and what there is to know of the
//! store.

use super::store::{self, Checked};
use super::{Driver, FAREWELL, News};
use crate::core::{Event, Time};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// One that can't leave by then stays: time for a check that gets no answer, and for another one. Below any limit that a
/// service manager would have for a stop.
const LIMIT: Duration = Duration::from_secs(10);

/// Whether somebody wants us to leave.
#[derive(Debug, Default)]
pub(super) enum Leave {
    /// Nobody.
    #[default]
    Unasked,
    /// Once the store has everything.
    Wanted { until: Time },
}

impl Driver {
    /// SIGRTMIN+1. What was found before does not count against it: there may be room by now, or an answer.
    pub(super) fn leave_wanted(&mut self) {
        match self.leave {
            Leave::Wanted { .. } => {}
            Leave::Unasked => {
                self.leave = Leave::Wanted { until: self.now().after(LIMIT) };
                if !self.store.is_complete() {
                    self.tell_anew();
                }
            }
        }
    }

    /// Goes on with leaving. To be called when the core has been told everything.
    pub(super) fn attend_to_leave(&mut self) {
        let Leave::Wanted { until } = self.leave else { return };
        self.persist();
        let impossible = !self.notify.wanted() || self.book.trouble().is_some() || self.now() >= until;
        let checked = !self.checking && !self.store.is_due();
        if !impossible && checked && !self.store.is_complete() && !self.store.is_full() {
            // There was no answer.
            self.tell_anew();
            return self.check_store();
        }
        if !impossible && !checked {
            return self.check_store();
        }
        self.leave = Leave::Unasked;
        let stored = !impossible && self.store.is_complete();
        self.events.push_back(Event::Leave { stored });
    }

    /// Has everything told once more that nobody has confirmed.
    fn tell_anew(&mut self) {
        self.store.doubt();
        self.persist();
    }

    /// Asks whether the store has everything, unless it is being asked.
    fn check_store(&mut self) {
        if self.checking {
            return;
        }
        match self.store.check(&mut self.notify) {
            Ok(check) => {
                self.checking = true;
                let news = self.news.0.clone();
                tokio::spawn(async move {
                    // The loop has ended: nobody asks any more.
                    let _ = news.send(News::Stored(check.answer().await)).await;
                });
            }
            Err(error) => tracing::warn!("the fd store can't be asked: {error}"),
        }
    }

    /// The answer of the store.
    pub(super) fn stored(&mut self, checked: Option<Checked>) {
        self.checking = false;
        if checked.is_none() {
            tracing::warn!("the service manager does not confirm what it was told to store");
        }
        self.store.checked(&mut self.notify, checked);
    }

    /// Finds out whether what is new was stored, and says once when the store turns out to be too small.
    pub(super) fn look_at_store(&mut self) {
        if !self.notify.wanted() {
            return;
        }
        if self.store.is_due() {
            self.check_store();
        }
        let trouble = self.store.trouble();
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
            store::passed(barrier).await;
        };
        if timeout(FAREWELL, told).await.is_err() {
            tracing::warn!("the service manager has not handled everything that it was told");
        }
    }
}
