//! The example children as processes, supervised by the test.
//!
//! The channel is their standard input, so that no descriptor has to be made inheritable, which other processes that
//! the test program starts meanwhile would inherit too.
#![cfg(feature = "quinn")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the report")]

mod echo;
mod python;
mod supervisor;
