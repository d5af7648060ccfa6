//! The live generations' processes, by number.

use super::commands::Background;
use super::link::{Heard, Link};
use crate::core::Kill;
use crate::state::{ProcessEntry, names};
use crate::sys::pidfd::{Pidfd, kill_group};
use protocol::message::{Generation, ToChild};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::task::{Context, Poll};

/// One process, from its start to its retirement.
#[derive(Debug)]
pub(super) struct Child {
    entry: Option<ProcessEntry>,
    /// `None` once it has ended and nobody waits for it any more: its number may be another's.
    process: Option<Pidfd>,
    /// `None` if it was lost on the way from an earlier supervisor.
    link: Option<Link>,
    /// Nobody knows yet whether its process lives.
    search: Option<Background>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Children {
    by_generation: BTreeMap<Generation, Child>,
    /// Who was heard last; the next ones come first, so that one that talks without pause keeps nobody waiting.
    last: Option<Generation>,
}

impl Children {
    /// Takes in a new one.
    pub(super) fn insert(&mut self, generation: Generation, process: Pidfd, entry: ProcessEntry, link: Link) {
        let child = Child { entry: Some(entry), process: Some(process), link: Some(link), search: None };
        self.by_generation.insert(generation, child);
    }

    /// Takes in one of an earlier supervisor, as far as there is something.
    pub(super) fn restore(
        &mut self,
        generation: Generation,
        process: Option<Pidfd>,
        entry: Option<ProcessEntry>,
        link: Option<Link>,
        search: Option<Background>,
    ) {
        self.by_generation.insert(generation, Child { entry, process, link, search });
    }

    /// Its process has been found. Says how that was recorded, if it is still wanted.
    pub(super) fn found(&mut self, generation: Generation, process: Pidfd) -> Option<(&Pidfd, Option<ProcessEntry>)> {
        let child = self.by_generation.get_mut(&generation)?;
        child.search.take()?;
        Some((child.process.insert(process), child.entry))
    }

    /// Whether nobody knows if its process lives.
    pub(super) fn is_searched_for(&self, generation: Generation) -> bool {
        self.by_generation.get(&generation).is_some_and(|child| child.search.is_some())
    }

    /// How its process is told from others.
    pub(super) fn entry(&self, generation: Generation) -> Option<ProcessEntry> {
        self.by_generation.get(&generation).and_then(|child| child.entry)
    }

    /// The descriptors of all, by their names.
    pub(super) fn fds(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        self.by_generation.iter().flat_map(|(generation, child)| {
            let link = child.link.as_ref().map(|link| (names::channel(*generation), link.as_fd()));
            let process = child.process.as_ref().map(|process| (names::process(*generation), process.as_fd()));
            link.into_iter().chain(process)
        })
    }

    /// Forgets one and closes its channel.
    pub(super) fn remove(&mut self, generation: Generation) {
        self.by_generation.remove(&generation);
    }

    /// Sends to one.
    ///
    /// # Errors
    /// One line for the operator when it will never get it.
    pub(super) fn send(
        &mut self,
        generation: Generation,
        message: ToChild,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        match self.by_generation.get_mut(&generation).and_then(|child| child.link.as_mut()) {
            Some(link) => link.send(message, fds),
            None => Err("it has no channel".to_owned()),
        }
    }

    /// Signals one that still runs. Errors mean that it has just ended.
    pub(super) fn kill(&self, generation: Generation, how: Kill) {
        let Some(Child { entry, process: Some(process), .. }) = self.by_generation.get(&generation) else { return };
        match how {
            Kill::Term => drop(process.send_signal(libc::SIGTERM)),
            Kill::Group => {
                if process.signal_group(libc::SIGKILL).is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
                    // Linux before 6.9. It has not been reaped, as far as we know: the number is its own.
                    drop(entry.map(|entry| kill_group(entry.pid, libc::SIGKILL)));
                }
                drop(process.send_signal(libc::SIGKILL));
            }
        }
    }

    /// Passes a signal on to every process that runs, and to nothing that it started.
    pub(super) fn signal(&self, signal: i32) {
        for process in self.by_generation.values().filter_map(|child| child.process.as_ref()) {
            drop(process.send_signal(signal));
        }
    }

    /// It has been reaped. What it said before comes first.
    pub(super) fn ended(&mut self, generation: Generation) -> Vec<Heard> {
        let Some(child) = self.by_generation.get_mut(&generation) else { return Vec::new() };
        (child.process, child.search) = (None, None);
        child.link.as_mut().map(Link::last_words).unwrap_or_default()
    }

    /// The next thing that any of them says. Safe to cancel; pending while there are none.
    pub(super) async fn hear(&mut self) -> (Generation, Heard) {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Generation, Heard)> {
        let last = self.last.unwrap_or(Generation(0));
        let after = self.by_generation.range_mut((Excluded(last), Unbounded));
        if let Poll::Ready(heard) = first(after, cx) {
            self.last = Some(heard.0);
            return Poll::Ready(heard);
        }
        let before = self.by_generation.range_mut(..=last);
        let heard = first(before, cx);
        if let Poll::Ready((generation, _)) = &heard {
            self.last = Some(*generation);
        }
        heard
    }
}

fn first<'a>(
    children: impl Iterator<Item = (&'a Generation, &'a mut Child)>,
    cx: &mut Context<'_>,
) -> Poll<(Generation, Heard)> {
    for (generation, child) in children {
        let Some(link) = &mut child.link else { continue };
        if let Poll::Ready(heard) = link.poll(cx) {
            return Poll::Ready((*generation, heard));
        }
    }
    Poll::Pending
}
