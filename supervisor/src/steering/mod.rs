//! Which member of a group gets a packet: a classic-BPF program that the kernel runs for every packet.
//!
//! A server connection ID is one encrypted block that names a generation and a member ([`protocol::cid`]). The program
//! decrypts it, and a packet of a live generation goes to the member that its ID names. Every other packet, above all
//! the first one of a client, goes to the active generation (or, for a stated share of clients, to a canary), always to
//! the same member for one source address and port.
//!
//! ```text
//!  packet ─► where is an ID?   short header: at 1     long header with an 8-byte destination ID: at 6
//!                │ found                     │ none: too short, or another length
//!                ▼                           │
//!            decrypt: tag = generation, member
//!                │                           │
//!        ┌─ tag in a live range?             │
//!        │ yes          no ──────────────────┤
//!        ▼                                   ▼
//!  range's position + offset           hash of the source ─► below the canary's share? ─► canary's range
//!                                            └────────────── otherwise ─────────────────► active range
//! ```
//!
//! Use: [`Range::new`] and [`Plan::new`] check what is asked for, [`program()`] builds, [`crate::sys::bpf::attach`]
//! replaces the program of a whole group in one call. [`model`] says the same in plain Rust, and [`interpreter`] runs a
//! program as the kernel does; tests hold the three against each other. The why is in `docs/design/steering.md`.

mod asm;
pub mod interpreter;
pub mod model;
mod plan;
mod program;
mod source;
#[cfg(test)]
mod tests;

pub use asm::{Insn, Program};
pub use plan::{MAX_RANGES, Plan, PlanError, Range, RangeError};
pub use program::program;
