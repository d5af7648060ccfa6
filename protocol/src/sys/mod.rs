//! The only unsafe code, one file per interface of the system.
#![expect(
    unsafe_code,
    reason = "the environment and descriptor numbers are process-wide, so the compiler can't check them"
)]

mod env;
mod map;
mod watch;

pub(crate) use env::take_fd;
pub(crate) use map::Map;
pub(crate) use watch::watch;
