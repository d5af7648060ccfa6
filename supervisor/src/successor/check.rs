//! `--upgrade-check`: whether this program could go on with the state of another one.

use crate::cli::Failure;
use crate::core::Core;
use crate::state;
use protocol::exit;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

/// The flag, which goes before all others.
pub const FLAG: &str = "--upgrade-check";
/// What a program says that can: another one that happens to end with 0 does not.
const CONFIRMATION: &str = "moq-supervise can take over";

/// Reads a copy of the state from standard input and says on standard output whether it can be gone on with. Everything
/// that the command line says has been checked before.
///
/// # Errors
/// It can't.
pub fn check() -> Result<u8, Failure> {
    let failed = |why: String| Failure::new(exit::FAILURE, why);
    let file =
        io::stdin().as_fd().try_clone_to_owned().map_err(|error| failed(format!("no state to read: {error}")))?;
    let (_, document, same_format) = state::read(file).map_err(|error| failed(error.to_string()))?;
    let exact = same_format && document.exact.is_some_and(|core| serde_json::from_value::<Core>(core).is_ok());
    let how = if exact { "" } else { ", older generations will drain" };
    writeln!(io::stdout(), "{CONFIRMATION}{how}").map_err(|error| failed(error.to_string()))?;
    Ok(exit::OK)
}

/// Whether this is the output of a program that can take over.
#[must_use]
pub fn is_confirmation(output: &str) -> bool {
    output.lines().any(|line| line.starts_with(CONFIRMATION))
}
