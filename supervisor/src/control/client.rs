//! `status`, `upgrade` and `rollback`: ask a running supervisor, say the answer in one line, end with its status.
#![expect(clippy::disallowed_methods, reason = "a command's deadline is real time")]

use super::{Reply, Request, Status, metrics, table};
use crate::cli::Failure;
use protocol::exit;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// `status` is answered at once by a supervisor that is well.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// More than any answer: 16 generations and 4 096 listeners.
const MAX_REPLY: u64 = 4 << 20;

/// How a status is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Table,
    /// docs/control.md.
    Json,
    /// In the text format of Prometheus.
    Metrics,
}

/// Prints the status.
///
/// # Errors
/// When nobody answers.
pub fn status(control: &Path, form: Form) -> Result<u8, Failure> {
    let line = ask(control, &Request::Status, Some(STATUS_TIMEOUT))?;
    if form == Form::Json {
        // As it came, so that fields which this build does not know survive.
        let mut value: serde_json::Value = parse(&line)?;
        if let Some(object) = value.as_object_mut() {
            object.remove("reply");
        }
        print(&format!("{value}\n"));
        return Ok(exit::OK);
    }
    let status: Status = parse(&line)?;
    print(&if form == Form::Metrics { metrics(&status) } else { table(&status) });
    Ok(exit::OK)
}

/// Replaces the active generation and waits for the end of it.
///
/// # Errors
/// When nobody answers in time.
pub fn upgrade(control: &Path, evict_oldest: bool, timeout: Option<Duration>) -> Result<u8, Failure> {
    conclude(&ask(control, &Request::Upgrade { evict_oldest }, timeout)?, "upgrade")
}

/// Undoes an upgrade that is still in its probation.
///
/// # Errors
/// When nobody answers in time.
pub fn rollback(control: &Path, timeout: Option<Duration>) -> Result<u8, Failure> {
    conclude(&ask(control, &Request::Rollback, timeout)?, "rollback")
}

fn conclude(line: &[u8], what: &str) -> Result<u8, Failure> {
    match parse::<Reply>(line)? {
        Reply::Done { active } => {
            print(&format!("{what} done: generation {active} is active\n"));
            Ok(exit::OK)
        }
        Reply::Denied { message, .. } => Err(Failure::new(exit::DENIED, format!("{what} refused: {message}"))),
        Reply::Failed { generation, reason } => Err(Failure::new(
            exit::UPGRADE_FAILED,
            format!("{what} failed, nothing was changed: generation {generation}: {reason}"),
        )),
        Reply::RolledBack { generation, reason } => {
            Err(Failure::new(exit::ROLLED_BACK, format!("rolled back generation {generation}: {reason}")))
        }
        Reply::Error { message } => Err(Failure::new(exit::FAILURE, format!("{what}: {message}"))),
        Reply::Status(_) => Err(strange()),
    }
}

/// Sends one request and reads one line.
fn ask(control: &Path, request: &Request, timeout: Option<Duration>) -> Result<Vec<u8>, Failure> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let name = control.display();
    let mut stream = UnixStream::connect(control).map_err(|error| {
        let remedy = if error.kind() == io::ErrorKind::PermissionDenied {
            "run as its user or as root"
        } else {
            "is it running? name its socket with --control"
        };
        Failure::new(exit::UNREACHABLE, format!("no supervisor answers at {name}: {error}; {remedy}"))
    })?;
    let lost = |error: &io::Error| {
        let late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let why = if late { "it did not answer in time".to_owned() } else { error.to_string() };
        Failure::new(exit::UNREACHABLE, format!("lost the supervisor at {name} before its answer: {why}"))
    };
    let mut line = serde_json::to_vec(request).map_err(|error| Failure::new(exit::FAILURE, error.to_string()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(|error| lost(&error))?;
    let mut reply = Vec::new();
    let mut chunk = [0; 8_192];
    while reply.len() as u64 <= MAX_REPLY {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(lost(&io::ErrorKind::TimedOut.into()));
        }
        stream.set_read_timeout(left).map_err(|error| lost(&error))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Err(lost(&io::Error::other("it closed the connection"))),
            Ok(count) => reply.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(lost(&error)),
        }
        if reply.last() == Some(&b'\n') {
            return Ok(reply);
        }
    }
    Err(strange())
}

fn parse<T: serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(line).map_err(|_| strange())
}

fn strange() -> Failure {
    Failure::new(exit::FAILURE, "the supervisor's answer is not understood: use a moq-supervise of its version")
}

fn print(text: &str) {
    // Nobody reads: nothing to do about it.
    let _ = io::stdout().write_all(text.as_bytes());
}
