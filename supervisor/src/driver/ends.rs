//! Ends of processes and channels, as they become facts for the core.

use super::strangers::{self, watch};
use super::{Driver, Event, LOST_AFTER};
use crate::core::ExitStatus;
use crate::sys::pidfd::Pidfd;
use protocol::message::Generation;

impl Driver {
    pub(super) fn reap(&mut self) {
        for (generation, status) in self.reaper.collect() {
            self.ended(generation, status);
        }
    }

    /// Its process runs no more, and will be reaped in a moment.
    pub(super) fn dies(&mut self, generation: Generation, status: ExitStatus) {
        // A stop is over when nothing is left of anybody.
        if !self.core.is_stopping() && self.reaper.tell(generation) {
            self.ended(generation, status);
        }
    }

    pub(super) fn ended(&mut self, generation: Generation, status: ExitStatus) {
        for heard in self.children.ended(generation) {
            self.heard(generation, heard);
        }
        self.lost.remove(&generation);
        self.dying.forget(generation);
        self.events.push_back(Event::Exited { generation, status });
    }

    /// Hears of its end before waitid(2) does, if it is our child.
    pub(super) fn watch_closely(&mut self, generation: Generation) {
        if let Some(pid) = self.reaper.pid(generation) {
            self.dying.watch(generation, pid);
        }
    }

    pub(super) fn found(&mut self, generation: Generation, process: Pidfd) {
        if let Some((process, entry)) = self.children.found(generation, process) {
            tracing::info!("the process of generation {generation} is found");
            watch(generation, process, entry, &self.reaper, &self.news.0);
        }
    }

    /// Nothing more can be said to this child, or heard from it.
    pub(super) fn lose(&mut self, generation: Generation, error: String) {
        let searched_for = self.children.is_searched_for(generation);
        let due = self.now().after(if searched_for { strangers::GIVE_UP } else { LOST_AFTER });
        self.lost.entry(generation).or_insert((due, error));
    }
}
