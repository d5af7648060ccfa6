//! The supervisor itself is replaced, crashes, or is killed: what clients and operators notice of that (nothing).

mod crash;
mod heirs;
mod manager;
mod overlap;
mod replace;
mod service;
mod signals;
