//! The command line: parsed once, into types that can't be wrong any more.
//!
//! The order of a start is in [`main`]: parse, then either ask a running supervisor something ([`crate::control`]) or
//! become one ([`crate::driver`]).

mod control_path;
mod held;
mod secret;
mod values;

pub use control_path::default_control_path;

use crate::control::client::{self, Form};
use crate::driver;
use crate::{successor, sweep};
use clap::{Args, Parser, Subcommand};
use held::Held;
use protocol::exit;
use protocol::keys::Secret;
use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tracing_subscriber::filter::Targets;

/// Keeps a relay reachable while it is replaced.
///
/// Owns the listening sockets and runs PROGRAM on them. SIGUSR2 or `moq-supervise upgrade` starts PROGRAM again beside
/// the running one, moves new connections over and lets the old one drain.
#[derive(Debug, Parser)]
#[command(
    name = "moq-supervise",
    version,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    /// What to ask a running supervisor.
    #[command(subcommand)]
    pub command: Option<Request>,
    /// How to supervise.
    #[command(flatten)]
    pub supervise: Option<Supervise>,
}

/// The flags of the supervisor itself.
#[derive(Debug, Args)]
pub struct Supervise {
    /// The program to run, looked up in PATH at every start of a generation.
    #[arg(long, value_name = "PROGRAM")]
    pub exec: OsString,
    /// The control socket [default: $RUNTIME_DIRECTORY/control.sock, else $XDG_RUNTIME_DIR/moq-supervise/control.sock,
    /// else /run/moq-supervise/control.sock].
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// How long the replaced generation may keep its sessions after a handoff.
    #[arg(long, value_name = "DURATION", default_value = "10m", allow_hyphen_values = true, value_parser = values::duration)]
    pub drain_timeout: Duration,
    /// How long sessions may stay after SIGTERM [default: what the program asks for, else 10s].
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::duration)]
    pub stop_timeout: Option<Duration>,
    /// How long a new generation may take to become ready.
    #[arg(long, value_name = "DURATION", default_value = "30s", allow_hyphen_values = true, value_parser = values::positive_duration)]
    pub ready_timeout: Duration,
    /// How long a new generation is watched before the old one is told to drain; 0s: not at all.
    #[arg(long, value_name = "DURATION", default_value = "2s", allow_hyphen_values = true, value_parser = values::duration)]
    pub probation: Duration,
    /// How many generations may be alive at once, 2 to 16.
    #[arg(long, value_name = "N", default_value = "4", allow_hyphen_values = true, value_parser = values::max_generations)]
    pub max_generations: usize,
    /// 32 bytes (raw or as 64 hex digits) that all keys are derived from, the same on every node behind one address
    /// [default: random].
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Run by `sh -c` before each upgrade; a status other than 0 refuses the upgrade.
    #[arg(long, value_name = "COMMAND", value_parser = values::command)]
    pub check_command: Option<String>,
    /// Asked by GET each 250 ms during probation; three failures in a row roll back. Plain http only.
    #[arg(long, value_name = "URL", value_parser = values::health_url, conflicts_with = "health_command")]
    pub health_url: Option<HealthUrl>,
    /// Run by `sh -c` each 250 ms during probation; three failures in a row roll back.
    #[arg(long, value_name = "COMMAND", value_parser = values::command)]
    pub health_command: Option<String>,
    /// What to log: error, warn, info, debug, trace, or a list such as `info,supervisor::driver=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: Targets,
    /// Check the other flags, read a copy of a running supervisor's state from standard input, say whether this program
    /// could go on with it, and end. A running supervisor asks this before it replaces itself.
    #[arg(long, hide = true)]
    pub upgrade_check: bool,
    /// The program's arguments, after `--`.
    #[arg(last = true, value_name = "ARG")]
    pub args: Vec<OsString>,
}

/// A question or order to a running supervisor.
#[derive(Debug, Subcommand)]
pub enum Request {
    /// Say which generations live and what they do.
    Status {
        /// The supervisor's control socket.
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
        /// As JSON (docs/control.md).
        #[arg(long)]
        json: bool,
        /// As metrics in the text format of Prometheus.
        #[arg(long, conflicts_with = "json")]
        metrics: bool,
    },
    /// Replace the running generation; returns when the new one is committed, or with the reason why not.
    Upgrade {
        /// The supervisor's control socket.
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
        /// Make room by ending the oldest generation when --max-generations are alive.
        #[arg(long)]
        evict_oldest: bool,
        /// Stop waiting after this long; the upgrade itself goes on [default: wait for its end].
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::positive_duration)]
        timeout: Option<Duration>,
    },
    /// Undo an upgrade that is still in its probation.
    Rollback {
        /// The supervisor's control socket.
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
        /// Stop waiting after this long [default: wait for the answer].
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::positive_duration)]
        timeout: Option<Duration>,
    },
    /// End every other process of the systemd unit that this runs in, if it is being stopped for good. For ExecStopPost=.
    Sweep {
        /// From SIGTERM to SIGKILL.
        #[arg(long, value_name = "DURATION", default_value = "10s", allow_hyphen_values = true, value_parser = values::duration)]
        patience: Duration,
        /// Wait for the end of standard input first: the supervisor starts this by itself.
        #[arg(long, hide = true)]
        when_abandoned: bool,
    },
}

/// A plain-http address that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthUrl {
    /// Host and port as a `Host` header has them.
    pub authority: String,
    /// The host alone, an IPv6 address without its brackets.
    pub host: String,
    /// 80 unless named.
    pub port: u16,
    /// Path and query.
    pub path: String,
}

/// How the health of a generation in probation is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// `--health-url`: healthy is a 2xx answer.
    Url(HealthUrl),
    /// `--health-command`: healthy is exit status 0.
    Command(String),
}

/// Everything that the supervisor was told, checked.
#[derive(Debug)]
pub struct Config {
    /// The program as named by `--exec`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where the control socket goes.
    pub control: PathBuf,
    /// What the lifecycle depends on.
    pub settings: crate::core::Settings,
    /// What all keys are derived from.
    pub secret: Secret,
    /// It is from `--secret-file`, and not random.
    pub secret_is_given: bool,
    /// `--check-command`.
    pub check: Option<String>,
    /// `--health-url` or `--health-command`.
    pub health: Option<Health>,
}

/// Why a command ends badly: one line for people, one status for programs.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// One of [`protocol::exit`].
    pub status: u8,
    /// Names the culprit and the remedy.
    pub message: String,
}

impl Failure {
    /// A failure that ends the program with `status`.
    pub fn new(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Parses the process's arguments and does what they say.
#[must_use]
pub fn main() -> ExitCode {
    let held = Held::all();
    let outcome = match Cli::try_parse() {
        Ok(Cli { command: Some(request), .. }) => {
            held.release();
            ask(request)
        }
        Ok(Cli { command: None, supervise: Some(flags) }) if flags.upgrade_check => {
            held.release();
            configure(flags).and_then(|_| successor::check())
        }
        Ok(Cli { command: None, supervise: Some(flags) }) => supervise(flags),
        Ok(Cli { command: None, supervise: None }) => {
            Err(Failure::new(exit::USAGE, "no program to run: name it with --exec PROGRAM, or see --help"))
        }
        Err(error) => return usage(&error),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            // A closed standard error leaves nobody to tell.
            let _ = writeln!(std::io::stderr(), "moq-supervise: {failure}");
            ExitCode::from(failure.status)
        }
    }
}

fn ask(request: Request) -> Result<u8, Failure> {
    let at = |control: Option<PathBuf>| control.unwrap_or_else(|| default_control_path(values::environment));
    match request {
        Request::Status { control, json, metrics } => {
            let form = match (json, metrics) {
                (true, _) => Form::Json,
                (false, true) => Form::Metrics,
                (false, false) => Form::Table,
            };
            client::status(&at(control), form)
        }
        Request::Upgrade { control, evict_oldest, timeout } => client::upgrade(&at(control), evict_oldest, timeout),
        Request::Rollback { control, timeout } => client::rollback(&at(control), timeout),
        Request::Sweep { when_abandoned: true, .. } => sweep::when_abandoned(),
        Request::Sweep { when_abandoned: false, patience } => sweep::at_stop(patience),
    }
}

fn supervise(flags: Supervise) -> Result<u8, Failure> {
    let filter = flags.log_level.clone();
    driver::run(configure(flags)?, filter)
}

fn configure(flags: Supervise) -> Result<Config, Failure> {
    let secret = match &flags.secret_file {
        Some(path) => secret::read(path)?,
        None => Secret::random()
            .map_err(|error| Failure::new(exit::FAILURE, format!("the kernel gives no random numbers: {error}")))?,
    };
    let health = match (flags.health_url, flags.health_command) {
        (Some(url), _) => Some(Health::Url(url)),
        (None, Some(command)) => Some(Health::Command(command)),
        (None, None) => None,
    };
    Ok(Config {
        program: flags.exec,
        args: flags.args,
        control: flags.control.unwrap_or_else(|| default_control_path(values::environment)),
        settings: crate::core::Settings {
            drain_timeout: flags.drain_timeout,
            stop_timeout: flags.stop_timeout,
            ready_timeout: flags.ready_timeout,
            probation: flags.probation,
            max_generations: flags.max_generations,
            check: flags.check_command.is_some(),
            health: health.is_some(),
        },
        secret,
        secret_is_given: flags.secret_file.is_some(),
        check: flags.check_command,
        health,
    })
}

/// Help and version go out as clap has them; an error becomes one line.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::from(exit::OK);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(exit::USAGE);
    }
    let _ = writeln!(std::io::stderr(), "moq-supervise: {}", one_line(&error.render().to_string()));
    ExitCode::from(exit::USAGE)
}

/// clap's text without its usage block: the error and its tips, joined.
fn one_line(text: &str) -> String {
    let told = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let told: Vec<&str> = told.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    told.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
