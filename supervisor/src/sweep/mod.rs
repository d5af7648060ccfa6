//! Ending what is left of a service when no supervisor goes on with it.
//!
//! `KillMode=process` leaves generations alive when the supervisor ends, which is what a restart needs. At a final stop of a
//! dead supervisor nobody else ends them: systemd runs nothing then, it only drops the fd store, and with it our end of
//! every channel. Relays drain and end at that. For others there are two, with the same means:
//!
//! - `moq-supervise sweep`, for ExecStopPost=: at once, if the unit is being stopped for good;
//! - the *guard* (`sweep --when-abandoned`), a process that waits for the end of a channel whose other end is with the
//!   supervisor and in the fd store.

#![expect(clippy::disallowed_methods, reason = "a command that waits, and is no supervisor")]

mod job;
mod remains;
mod word;

pub use word::Word;

use crate::cli::Failure;
use crate::unit::Unit;
use nix::sys::signal::SigSet;
use protocol::exit;
use remains::Remains;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::time::{Duration, Instant};

/// The flag of the guard.
pub const WHEN_ABANDONED: &str = "--when-abandoned";
/// How long the guard lets generations end by themselves before it was told otherwise.
const PATIENCE: Duration = Duration::from_secs(15);
/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Between two looks at who is left.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Ends every other process of our own unit, if the unit is being stopped for good and the supervisor did not end in good
/// order: SIGTERM, and SIGKILL after `patience`.
///
/// # Errors
/// This is no unit's process.
pub fn at_stop(patience: Duration) -> Result<u8, Failure> {
    let unit = own_unit()?;
    if ended_by_itself(|name| std::env::var_os(name)) {
        return Ok(exit::OK);
    }
    match job::of(&unit) {
        Ok(Some(job)) if job == "stop" => {
            end_all(&mut Remains::everybody(&unit), Duration::ZERO, patience);
        }
        // A restart, or none: the service ended by itself, and what follows is for systemd to decide.
        Ok(_) => {}
        Err(error) => {
            return Err(Failure::new(
                exit::FAILURE,
                format!("whether {} is being stopped for good is not known, nothing is ended: {error}", unit.name),
            ));
        }
    }
    Ok(exit::OK)
}

/// Waits on standard input until no supervisor holds the other end, and then ends what the service has left in our own unit.
///
/// The unit may be started again at any time after that: whoever has come since is not touched.
///
/// # Errors
/// This is no unit's process.
pub fn when_abandoned() -> Result<u8, Failure> {
    let unit = own_unit()?;
    // A signal to the whole unit is not for us: we end after all others.
    let _ = SigSet::all().thread_set_mask();
    let mut patience = PATIENCE;
    let mut bytes = [0; Word::BYTES];
    while io::stdin().read_exact(&mut bytes).is_ok() {
        match Word::from_bytes(bytes) {
            Word::End => return Ok(exit::OK),
            Word::Patience(allowed) => patience = allowed,
        }
    }
    end_all(&mut Remains::of_the_last_service(&unit), patience, GRACE);
    Ok(exit::OK)
}

/// Whether a supervisor that ended in good order was followed by this (systemd.exec(5): $EXIT_CODE, $EXIT_STATUS). It has
/// ended its generations, or has left them to the next one. To ask systemd would be the longest part of a restart.
fn ended_by_itself(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is = |name, value: &str| variable(name).is_some_and(|found| found == value);
    is("EXIT_CODE", "exited") && is("EXIT_STATUS", "0")
}

fn own_unit() -> Result<Unit, Failure> {
    Unit::own().ok_or_else(|| {
        Failure::new(
            exit::USAGE,
            "sweep ends the processes of its own systemd service, and this is none; see docs/operations.md",
        )
    })
}

/// Waits for `patience`, sends SIGTERM, waits for `grace`, and sends SIGKILL until nobody is left.
fn end_all(remains: &mut Remains<'_>, patience: Duration, grace: Duration) {
    if is_empty_within(remains, patience) {
        return;
    }
    remains.signal(libc::SIGTERM);
    if is_empty_within(remains, grace) {
        return;
    }
    // Whoever is killed may have started another just before. What SIGKILL does not end is beyond us.
    let killed_by = Instant::now() + GRACE;
    while Instant::now() < killed_by && !remains.are_gone() {
        remains.signal(libc::SIGKILL);
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn is_empty_within(remains: &mut Remains<'_>, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        if remains.are_gone() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_supervisor_that_ended_with_0_has_nothing_to_be_swept_up_after() {
        let ended = |code: &str, status: &str| {
            ended_by_itself(|name| match name {
                "EXIT_CODE" => Some(code.into()),
                "EXIT_STATUS" => Some(status.into()),
                _ => None,
            })
        };
        assert!(ended("exited", "0"));
        for (code, status) in [("exited", "1"), ("killed", "KILL"), ("dumped", "ABRT"), ("killed", "0")] {
            assert!(!ended(code, status), "{code} {status}");
        }
        assert!(!ended_by_itself(|_| None), "by hand");
    }
}
