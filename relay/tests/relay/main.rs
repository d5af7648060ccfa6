//! The relay alone, in its own process, with clients of every transport and version.

mod admission;
mod client;
mod drain;
mod process;
mod serving;
mod tap;
