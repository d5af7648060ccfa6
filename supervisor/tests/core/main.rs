//! The lifecycle core: tables, random walks and the model checker, each watched by the same reference model.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a test ends at the first surprise, says what it saw, and picks what it looks for"
)]

mod canonical;
mod crash;
mod degraded;
mod failure;
mod heirs;
mod life;
mod matrix;
mod model;
mod probation;
mod resume;
mod silence;
mod speaker;
mod stop;
mod taken_over;
mod upgrade;
mod walk;
mod watch;
mod world;
