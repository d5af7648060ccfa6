//! The lifecycle as a plain state machine: no clock, socket, process, async or environment.

pub mod event;

pub use event::{Action, Deny, Event, ExitStatus, Kill, Note, Outcome, RequestId, Settings, SpawnError, Steering};
