//! Draining: telling every session to go (GOAWAY) at a steady rate, and closing those that stay at their deadline.
//!
//! [`Plan`] is the schedule, [`Registry`] knows who is connected and hands each session its [`Slot`]. Nobody but the
//! session's own task, on its own worker, sends its GOAWAY and closes it.

mod plan;
mod registry;

pub use plan::{ABOUT, AUTO_RATE, Clamped, Plan, Purpose, SPREAD_LIMIT, STEP, STEP_LIMIT, Slot, Turn};
pub(crate) use registry::sleep_until;
pub use registry::{Begun, Counts, Ending, Open, Registry, Setup};
