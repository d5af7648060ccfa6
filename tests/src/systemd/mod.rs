//! The unit that we ship, under a real systemd that is PID 1 of namespaces of its own (`systemd/sandbox`).
//!
//! [`test()`] brings one up and runs a test in its network, so that the clients of this package reach the service as if
//! they were on its machine. [`Service`] is the shipped unit with a program of the test's choice under it, [`Clients`]
//! the load that must notice nothing.

mod clients;
mod sandbox;
mod service;
mod units;

pub use clients::{Clients, HANDSHAKES, Losses, SESSIONS};
pub use sandbox::Sandbox;
pub use service::{Service, Setup};
pub use units::{Units, shipped};

use anyhow::Context as _;
use nix::sched::{CloneFlags, setns};
use std::io::Write as _;

/// Runs `body` beside a fresh systemd and in its network.
///
/// Needs root. Without it the test is left out, loudly; in CI (`CI=true`) that is a failure.
///
/// # Errors
/// systemd does not come up, there is no root in CI, or `body` failed.
pub fn test(body: impl AsyncFnOnce(&Sandbox) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if !crate::root::is_there("this test runs systemd in namespaces of its own")? {
        return Ok(());
    }
    inside(body)
}

/// [`test()`] without its rule about root: where there is none, that is an error.
///
/// # Errors
/// As [`test()`].
pub fn inside(body: impl AsyncFnOnce(&Sandbox) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let sandbox = Sandbox::start()?;
    // A new thread is in the namespaces of the thread that made it: with this one, so is all of the runtime.
    setns(sandbox.network()?, CloneFlags::CLONE_NEWNET).context("going into the sandbox's network")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let outcome = body(&sandbox).await;
        if outcome.is_err() {
            writeln!(std::io::stderr(), "{}", sandbox.journal().await)?;
        }
        outcome
    })
}
