//! The lifecycle core: tables, random walks and the model checker, each watched by the same reference model.

mod crash;
mod life;
mod probation;
mod stop;
mod upgrade;
mod watch;
