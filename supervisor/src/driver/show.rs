//! What operators are shown: the status, and what they should look at.

use super::{Driver, status};
use crate::control::{ListenerStatus, Status};
use crate::core::Snapshot;
use crate::sockets::Handed;
use protocol::message::Adopted;

impl Driver {
    pub(super) fn status(&self) -> Status {
        let now = self.now();
        let supervisor = status::supervisor(self.started.until(now), &self.config.program);
        let snapshot = self.core.snapshot(now);
        let listeners = self.listeners(&snapshot);
        status::status(snapshot, supervisor, listeners, self.all_alarms())
    }

    fn all_alarms(&self) -> Vec<String> {
        let own = self.own_trouble.as_ref().map(|why| format!("the supervisor could not replace itself: {why}"));
        let book = self.book.trouble().map(|why| format!("another supervisor could not go on from here: {why}"));
        let standing =
            own.into_iter().chain(book).chain(self.store_trouble.clone()).chain(self.lasting.iter().cloned());
        self.alarms.iter().cloned().chain(standing).collect()
    }

    /// As the youngest live generation that has them.
    fn listeners(&self, snapshot: &Snapshot) -> Vec<ListenerStatus> {
        let mut listeners: Vec<ListenerStatus> = Vec::new();
        for view in snapshot.generations.iter().rev() {
            for Handed { socket, fds } in self.table.handed(view.generation) {
                let Adopted { name, kind, address, .. } = socket;
                if !listeners.iter().any(|other| other.kind == kind && other.address == address) {
                    listeners.push(ListenerStatus { name, kind, address, members: fds.len() });
                }
            }
        }
        listeners
    }

    /// Attaches the steering program afresh, and looks who else is at our addresses.
    pub(super) fn reattach(&mut self) {
        if let Err(error) = self.table.reattach() {
            tracing::warn!("{error}");
        }
        let foreign = match self.table.foreign() {
            Ok(foreign) => foreign,
            // A sandbox without netlink: said once, at debug, since it says nothing about the service.
            Err(error) => return tracing::debug!("sockets of others can't be counted: {error}"),
        };
        let merging = self.merging.iter().map(ToString::to_string);
        let alarms: Vec<String> = foreign.iter().map(ToString::to_string).chain(merging).collect();
        for alarm in alarms.iter().filter(|alarm| !self.alarms.contains(alarm)) {
            tracing::warn!("{alarm}");
        }
        self.alarms = alarms;
    }
}
