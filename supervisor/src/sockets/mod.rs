//! The listening sockets of all generations: found or bound, handed out, steered, and closed when nobody wants them.
//!
//! ```text
//! Table ── Listener ── Group ── members (UDP, SO_REUSEPORT; position = order of binding)
//!   │         ├─────── TCP socket
//!   │         └─────── unix socket
//!   └── what each generation holds: listeners, and runs of members in groups
//! ```
//!
//! See `docs/design/sockets.md`.

mod bind;
mod error;
mod group;
mod holder;
mod listener;
mod nic;
mod request;
mod runs;
mod saved;
mod steer;
mod table;
mod unix;

pub use error::{GrantError, GroError, SteerError, Warning};
pub use holder::Holder;
pub use listener::MemberShare;
pub use nic::{Merging, merging_interfaces};
pub use request::RequestError;
pub use saved::Stranded;
pub use steer::Foreign;
pub use table::{Granted, Handed, Table};

#[cfg(test)]
mod tests;
