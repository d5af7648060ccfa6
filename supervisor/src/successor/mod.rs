//! The supervisor's own replacement by another program file, in place: same process, sockets, children
//! (`docs/design/state.md`).

mod check;
mod exec;
mod own;

pub use check::{FLAG, check, is_confirmation};
pub use exec::execute;
pub use own::{Identity, Own};
