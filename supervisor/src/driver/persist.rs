//! Keeping the state current: for the program that we may be replaced by, and for the supervisor after a crash.

use super::Driver;
use super::children::Children;
use super::guard::Guard;
use super::kept::Kept;
use super::ledgers::Ledgers;
use crate::core::Survivor;
use crate::sockets::Table;
use crate::state::{ControlEntry, Document, Ending, FORMAT, GenerationEntry, Slots, TriggerEntry, names};
use protocol::channel::sealed_memfd;
use protocol::keys::Secret;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Where the document and the secret are.
#[derive(Debug)]
pub(super) struct Book {
    slots: Slots,
    secret: OwnedFd,
    /// What was written last.
    written: Vec<u8>,
    /// Why it could not be written.
    trouble: Option<String>,
}

impl Book {
    /// A new one.
    ///
    /// # Errors
    /// As memfd_create(2).
    pub(super) fn new(secret: &Secret) -> io::Result<Self> {
        let secret = sealed_memfd("moq-supervise-secret", secret.expose())?;
        Ok(Self::restored(Slots::create()?, secret))
    }

    /// That of an earlier process.
    pub(super) const fn restored(slots: Slots, secret: OwnedFd) -> Self {
        Self { slots, secret, written: Vec::new(), trouble: None }
    }

    /// A file of its own with what was written last.
    ///
    /// # Errors
    /// As memfd_create(2).
    pub(super) fn copy(&self) -> io::Result<OwnedFd> {
        self.slots.copy()
    }

    /// Why nobody could go on from here.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn fds(&self) -> [(String, BorrowedFd<'_>); 2] {
        [(names::STATE.to_owned(), self.slots.as_fd()), (names::SECRET.to_owned(), self.secret.as_fd())]
    }

    fn write(&mut self, document: &Document) {
        let result = match serde_json::to_vec(document) {
            Ok(text) if text == self.written => Ok(()),
            Ok(text) => {
                self.slots.write(FORMAT, &text).map(|()| self.written = text).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let trouble = result.err();
        if trouble != self.trouble
            && let Some(trouble) = &trouble
        {
            tracing::error!("another supervisor could not go on from here: {trouble}");
        }
        self.trouble = trouble;
    }
}

impl Driver {
    /// Stores what is new, writes down what there is, and removes what is gone from the store: in this order, so that
    /// at no moment the document names something that is not there.
    pub(super) fn persist(&mut self) {
        let document = self.document();
        let Self { table, children, kept, ledgers, guard, book, store, notify, .. } = self;
        let sources = Sources { table, children, kept, ledgers, guard: guard.as_ref() };
        store.add(notify, &sources.named(book));
        book.write(&document);
        store.prune(notify, &sources.named(book));
    }

    /// Everything that another process needs, by name.
    pub(super) fn named(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let Self { table, children, kept, ledgers, guard, .. } = self;
        Sources { table, children, kept, ledgers, guard: guard.as_ref() }.named(&self.book)
    }

    /// Writes down also what goes along over execve alone.
    pub(super) fn persist_for_exec(&mut self, control: ControlEntry, triggers: Vec<TriggerEntry>) {
        let document = Document { control: Some(control), triggers, ..self.document() };
        self.book.write(&document);
    }

    fn document(&self) -> Document {
        let entry = |survivor: &Survivor| GenerationEntry {
            generation: survivor.generation,
            part: survivor.part,
            process: self.children.entry(survivor.generation),
        };
        Document {
            boot: hex::encode(self.boot.as_bytes()),
            next: self.core.next_generation(),
            ending: if self.core.is_leaving() {
                Ending::Left
            } else if self.core.has_ended() {
                Ending::Stopped
            } else {
                Ending::None
            },
            generations: self.core.survivors().iter().map(entry).collect(),
            sockets: self.table.save().0,
            kept: self.kept.entries(),
            mourned: self.core.mourned(),
            ledgers: self.ledgers.entries(),
            guard: self.guard.as_ref().and_then(Guard::entry),
            control: None,
            triggers: Vec::new(),
            exact: serde_json::to_value(&self.core).ok(),
        }
    }
}

/// Who has descriptors, apart from the book, which is written while they are listed.
struct Sources<'a> {
    table: &'a Table,
    children: &'a Children,
    kept: &'a Kept,
    ledgers: &'a Ledgers,
    guard: Option<&'a Guard>,
}

impl<'a> Sources<'a> {
    fn named(&self, book: &'a Book) -> Vec<(String, BorrowedFd<'a>)> {
        let mut fds = self.table.save().1;
        fds.extend(self.children.fds());
        fds.extend(self.kept.fds());
        fds.extend(self.ledgers.fds());
        fds.extend(self.guard.map(|guard| (names::GUARD.to_owned(), guard.as_fd())));
        fds.extend(book.fds());
        fds
    }
}
