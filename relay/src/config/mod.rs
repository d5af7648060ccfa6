//! The settings of the relay: `moq-relay [FILE] [flags]`, flag over environment over file over default.

mod types;

pub use types::{
    Auth, Bind, Cache, Config, CongestionControl, Listen, Log, PairFiles, Quic, QuicListener, Runtime, Size, Tls,
    UnixAllow, UnixListener,
};

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

impl Config {
    /// Reads the settings of this process: its arguments, its environment, and the file that they name.
    ///
    /// # Errors
    /// The first setting that is unknown, not supported by this relay, or has a value that can't be used.
    pub fn from_process() -> Result<Request, Error> {
        Err(Error("not yet".to_owned()))
    }
}

impl Log {
    /// The filter that these settings describe, with targets quietened that would print a peer's credentials.
    #[must_use]
    pub fn filter(&self) -> tracing_subscriber::EnvFilter {
        tracing_subscriber::EnvFilter::default()
    }
}
