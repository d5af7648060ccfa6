//! The listening sockets of all generations.
