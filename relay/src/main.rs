//! `moq-relay [FILE] [flags]`: see `relay`.

use relay::config::{Config, Request};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let config = match Config::from_process() {
        Ok(Request::Run(config)) => config,
        Ok(Request::Print(text)) => {
            let printed = std::io::stdout().write_all(text.as_bytes());
            return if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Err(error) => return fail(&error.to_string(), protocol::exit::USAGE),
    };
    match relay::run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}"), protocol::exit::FAILURE),
    }
}

/// The last line on standard error says what was wrong.
fn fail(error: &str, status: u8) -> ExitCode {
    // A closed standard error takes the line; the status still tells.
    drop(writeln!(std::io::stderr(), "moq-relay: {error}"));
    ExitCode::from(status)
}
