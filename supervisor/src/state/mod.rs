//! What another supervisor process needs to go on: descriptors by name, and one document that says what they are
//! (`docs/design/state.md`).

mod document;
mod inherited;
pub mod names;
mod process;
mod restore;
mod slots;

pub use document::{
    ControlEntry, Document, Ending, FORMAT, FileEntry, GenerationEntry, HoldingEntry, KindEntry, LedgerEntry,
    ListenerEntry, ProcessEntry, RunEntry, SocketsEntry, TriggerEntry,
};
pub use inherited::{Inherited, VARIABLES, variables};
pub use process::Whereabouts;
pub use restore::{Found, KeptFile, LedgerFile, Restored, Start, Unusable, read, restore};
pub use slots::{BadSlot, Content, MAX_CONTENT, Slots, Unreadable, WriteError};
