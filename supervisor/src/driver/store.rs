//! What the service manager keeps for the next supervisor process (its fd store), and whether it does.
//!
//! The protocol has no answers: a descriptor for which there is no room is closed without a word. So behind everything that
//! was told, a *probe* is stored, the writing end of a pipe of ours, and then a barrier. When the barrier is through and the
//! other end of the pipe has come to its end, nobody holds the probe: the store was full, and what came before may be
//! missing too. This asks for no bus, which a process of a `DynamicUser=` can't reach on systemd 252.

use super::notify::Notify;
use crate::state::names;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

/// A service manager that has not confirmed by then hangs, or knows no barriers (systemd before 246).
const CONFIRM_LIMIT: Duration = Duration::from_secs(5);

/// What it has been told to keep.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// Those that are there.
    kept: BTreeSet<String>,
    /// Those that may be there, by the number of the change that told them.
    told: BTreeMap<String, u64>,
    /// So many changes were told.
    changes: u64,
    /// So many of them a check has found carried out.
    confirmed: u64,
    /// So many there were when a check was begun last.
    asked: u64,
    /// The last check found no room.
    full: bool,
}

impl Store {
    /// Stores those that are new.
    pub(super) fn add(&mut self, notify: &mut Notify, fds: &[(String, BorrowedFd<'_>)]) {
        if !notify.wanted() {
            return;
        }
        for (name, fd) in fds {
            if !self.kept.contains(name) && !self.told.contains_key(name) {
                notify.store(name, *fd);
                self.changes += 1;
                self.told.insert(name.clone(), self.changes);
            }
        }
    }

    /// Removes those that are not among these. What found no room before is told anew by the next [`Store::add`].
    pub(super) fn prune(&mut self, notify: &mut Notify, fds: &[(String, BorrowedFd<'_>)]) {
        let wanted: BTreeSet<&str> = fds.iter().map(|(name, _)| name.as_str()).collect();
        let useless = |name: &String| !wanted.contains(name.as_str());
        let told = self.told.extract_if(.., |name, _| useless(name)).map(|(name, _)| name);
        let gone: Vec<String> = told.chain(self.kept.extract_if(.., useless)).collect();
        for name in &gone {
            notify.remove(name);
            self.changes += 1;
        }
        if self.full && !gone.is_empty() {
            // The manager drops a file that it has already.
            self.told.clear();
        }
    }

    /// Removes what was there before us and is of no use. To be called before anything is told: it goes by names, and what is
    /// kept under one may be another file than ours.
    pub(super) fn discard<'a>(&mut self, notify: &mut Notify, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            notify.remove(name);
            self.changes += 1;
        }
    }

    /// Nothing is known any more of what was not confirmed: the next [`Store::add`] tells it anew, and a check is due. What the
    /// manager has already it drops.
    pub(super) fn doubt(&mut self) {
        self.told.clear();
        self.changes += 1;
    }

    /// Whether the last answer was that there is no room.
    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    /// Whether there are changes that nobody has asked about yet.
    pub(super) const fn is_due(&self) -> bool {
        self.changes != self.asked
    }

    /// Begins to find out whether everything that was told so far is there.
    ///
    /// # Errors
    /// As pipe2(2); ENOTCONN when there is no manager.
    pub(super) fn check(&mut self, notify: &mut Notify) -> io::Result<Check> {
        self.asked = self.changes;
        let probe = notify.probe(names::PROBE)?;
        let barrier = notify.barrier()?;
        Ok(Check { changes: self.changes, probe, barrier })
    }

    /// What a check has found; `None`: it had no answer.
    pub(super) fn checked(&mut self, notify: &mut Notify, checked: Option<Checked>) {
        // Not before: a probe that is removed looks like one that found no room.
        notify.remove(names::PROBE);
        let Some(checked) = checked else { return };
        self.full = checked.full;
        if !checked.full {
            self.confirmed = self.confirmed.max(checked.changes);
            let there = self.told.extract_if(.., |_, change| *change <= checked.changes);
            self.kept.extend(there.map(|(name, _)| name));
        }
    }

    /// Nobody asks any more; a check may be under way.
    pub(super) fn close(&self, notify: &mut Notify) {
        notify.remove(names::PROBE);
    }

    /// Whether everything is there.
    pub(super) const fn is_complete(&self) -> bool {
        self.confirmed == self.changes && !self.full
    }

    /// Why the next supervisor would not find everything; with the remedy.
    pub(super) fn trouble(&self) -> Option<String> {
        let needed = self.kept.len() + self.told.len();
        self.full.then(|| {
            format!(
                "the fd store is full: {needed} descriptors and one to spare are needed. If the supervisor is killed or \
                 restarted, the service is interrupted; raise FileDescriptorStoreMax= in the unit"
            )
        })
    }
}

/// A question to the manager.
#[derive(Debug)]
pub(super) struct Check {
    changes: u64,
    probe: OwnedFd,
    barrier: OwnedFd,
}

/// Its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    changes: u64,
    full: bool,
}

impl Check {
    /// Waits for the answer; `None`: there is none in time.
    pub(super) async fn answer(self) -> Option<Checked> {
        timeout(CONFIRM_LIMIT, passed(self.barrier)).await.ok()?;
        // Nothing is ever written, so what can be read is the end, and EAGAIN says that somebody has the other end.
        let full = nix::unistd::read(&self.probe, &mut [0]).is_ok();
        Some(Checked { changes: self.changes, full })
    }
}

/// Until the other end is closed, by who was told so behind everything else.
pub(super) async fn passed(barrier: OwnedFd) {
    let Ok(barrier) = Receiver::from_owned_fd(barrier) else { return };
    // Nothing is ever written: what can be read is the end.
    let _ = barrier.readable().await;
}

#[cfg(test)]
mod tests;
