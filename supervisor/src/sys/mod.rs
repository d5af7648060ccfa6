//! The operating system's interfaces, one file each: the only place with `unsafe`. Only owned and borrowed descriptors
//! cross it, and every descriptor is made close-on-exec.

pub mod bpf;
pub mod ethtool;
pub mod exec;
pub mod inherit;
pub mod pidfd;
pub mod reap;
pub mod sock_diag;
pub mod watch;
