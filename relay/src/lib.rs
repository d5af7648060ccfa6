//! A thin, complete MoQ relay that can be replaced under load.

pub mod cache;
pub mod config;
pub mod quic;
pub mod tls;
