//! The child protocol of `moq-supervise`: messages, framing, connection IDs and keys, and the child's side of it.

pub mod exit;
pub mod message;
