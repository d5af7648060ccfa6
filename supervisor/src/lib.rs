//! `moq-supervise` keeps a MoQ relay reachable while the relay underneath is upgraded, rolled back, crashes or is
//! reconfigured.

pub mod cli;
pub mod control;
pub mod core;
pub mod driver;
pub mod sockets;
pub mod stat;
pub mod state;
pub mod steering;
pub mod successor;
pub mod sweep;
pub mod sys;
pub mod unit;
