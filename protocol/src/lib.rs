//! The child protocol of `moq-supervise`: messages, framing, connection IDs and keys, and the child's side of it.
//!
//! `docs/protocol.md` specifies it for other languages. Without features this crate is what the supervisor needs; `child`
//! adds the child's side on tokio, `quinn` a QUIC endpoint on adopted sockets.

pub mod channel;
#[cfg(feature = "child")]
pub mod child;
pub mod cid;
pub mod exit;
pub mod keys;
pub mod ledger;
pub mod message;
#[cfg(feature = "quinn")]
pub mod quinn;
#[cfg(feature = "child")]
mod sys;
