//! A thin, complete MoQ relay that can be replaced under load.
//!
//! [`run`] is the whole program: its startup order is in one place there. `docs/design/relay.md` says how the parts
//! work together.

pub mod admission;
pub mod cache;
pub mod cluster;
pub mod config;
mod control;
pub mod drain;
mod internal;
mod linger;
mod log;
mod node;
mod overlap;
pub mod quic;
pub mod reconnect;
pub mod role;
mod run;
mod session;
mod sockets;
mod stats;
mod stream;
mod supervise;
pub mod tls;
mod worker;

pub use run::run;
