//! This relay as a node of a cluster.

pub mod hop;
