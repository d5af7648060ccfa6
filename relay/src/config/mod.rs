//! The settings of the relay: `moq-relay [FILE] [flags]`, flag over environment over file over default.
//!
//! `catalog` says what there is; `cli`, `given` and `file` read one layer each into texts with their origin; `build`
//! makes a [`Config`] of the merged layers. Names are those of moq-relay 0.17; what this relay does not have is
//! `refused` by name. `docs/relay.md` is the reference, its tables checked against the catalog.

mod build;
mod catalog;
mod cli;
mod file;
mod given;
mod log;
mod refused;
#[cfg(test)]
mod tests;
mod types;
mod values;

pub use types::{
    Auth, Bind, Cache, Cluster, Config, CongestionControl, Connect, ConnectTls, Listen, Log, PairFiles, Quic,
    QuicListener, Runtime, Size, Stats, Tls, UnixAllow, UnixListener,
};

use std::collections::HashMap;
use std::ffi::OsString;
use std::num::NonZeroU16;

/// Most workers: the members of one listener arrive in one `SCM_RIGHTS` message, which carries at most 253 descriptors
/// (`SCM_MAX_FD`, unix(7)).
pub const MAX_WORKERS: u16 = 253;

/// What a command line asks for.
#[derive(Debug)]
pub enum Request {
    /// Run with these settings.
    Run(Box<Config>),
    /// Print this to standard output and end with 0 (`--help`, `--version`).
    Print(String),
}

/// A setting that can't be used. Displays as one line that names the culprit and what to do; the exit status for it is
/// [`protocol::exit::USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    fn new(message: String) -> Self {
        Self(message)
    }
}

impl Config {
    /// Reads the settings of this process: its arguments, its environment, and the file that they name.
    ///
    /// # Errors
    /// The first setting that is unknown, not supported by this relay, or has a value that can't be used.
    pub fn from_process() -> Result<Request, Error> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let cores = u16::try_from(cores).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MAX);
        Self::read(std::env::args_os(), std::env::vars_os(), cores)
    }

    /// Reads the settings that these arguments (the program's name first), this environment and the file they name give,
    /// on a machine of this many cores.
    ///
    /// # Errors
    /// As [`Self::from_process`].
    pub fn read(
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        cores: NonZeroU16,
    ) -> Result<Request, Error> {
        let (path, flags) = match cli::parse(arguments.into_iter().collect())? {
            cli::Line::Print(text) => return Ok(Request::Print(text)),
            cli::Line::Settings { file, layer } => (file, layer),
        };
        let environment: HashMap<OsString, OsString> = environment.into_iter().collect();
        let variables = given::environment(&environment)?;
        let file = path.as_deref().map(file::read).transpose()?.unwrap_or_default();
        let rust_log = environment.get(&OsString::from("RUST_LOG")).filter(|value| !value.is_empty());
        let rust_log = rust_log.map(|value| value.to_string_lossy().into_owned());
        let layer = file.under(variables).under(flags);
        build::build(&layer, &build::Machine { cores, rust_log }).map(|config| Request::Run(Box::new(config)))
    }
}
