//! Running a program for what it says.

use super::commands::{Process, success};
use super::reap::Reaper;
use super::spawn;
use crate::core::ExitStatus;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

/// More is read and thrown away.
const MAX_OUTPUT: usize = 4_096;

/// Runs a program to its end, with `args` of which the first is its name, in a process group of its own. Returns what it
/// wrote to standard output and standard error.
///
/// # Errors
/// In words that go on after the program's name: it can't be executed, did not end in time (and was killed), or ended with
/// another status than 0 (then with the last line that it wrote).
pub(super) async fn capture(
    file: &Path,
    args: &[OsString],
    input: Option<OwnedFd>,
    limit: Duration,
    reaper: &Reaper,
) -> Result<String, String> {
    let started = spawn::captured(file, args, input).map_err(|error| format!("can't be executed: {error}"))?;
    let (process, output) = started;
    let mut process = Process::new(process.pid, reaper);
    let output = Receiver::from_owned_fd(output).map_err(|error| format!("can't be listened to: {error}"))?;
    let run = async {
        let text = read(output).await;
        (text, (&mut process.end).await)
    };
    let Ok((text, end)) = timeout(limit, run).await else {
        return Err(format!("did not end within {} s and was killed", limit.as_secs()));
    };
    let Err(why) = success(end.unwrap_or(ExitStatus::Unknown)) else { return Ok(text) };
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    Err(last.map_or_else(|| why.clone(), |last| format!("{why}: {last}")))
}

/// Until every writer has closed it, as far as it fits.
async fn read(mut output: Receiver) -> String {
    let mut text = Vec::with_capacity(MAX_OUTPUT);
    let mut chunk = [0; MAX_OUTPUT];
    while let Ok(count @ 1..) = output.read(&mut chunk).await {
        let room = MAX_OUTPUT.saturating_sub(text.len());
        text.extend_from_slice(&chunk[..count.min(room)]);
    }
    String::from_utf8_lossy(&text).into_owned()
}
