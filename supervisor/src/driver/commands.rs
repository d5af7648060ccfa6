//! `--check-command` before an upgrade, and the health probes of a probation. Each runs in a task of its own, bounded in
//! time, and reports an event.

use super::reap::Reaper;
use super::spawn;
use crate::cli::{Health, HealthUrl};
use crate::core::{Event, ExitStatus};
use crate::sys::pidfd::kill_group;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use protocol::message::Generation;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// From one probe's start to the next.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// No answer by then is a failure. Three in a row are over before the default probation is.
const PROBE_LIMIT: Duration = Duration::from_millis(500);

/// What runs in the background; ends when dropped, with its process.
#[derive(Debug)]
pub(super) struct Background(JoinHandle<()>);

impl Background {
    /// Runs it beside the loop.
    pub(super) fn new(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs the check once; [`Event::Checked`] says how it ended.
pub(super) fn check(
    command: String,
    limit: Duration,
    generation: Generation,
    reaper: Reaper,
    events: mpsc::Sender<Event>,
) -> Background {
    Background(tokio::spawn(async move {
        let result = run(&command, limit, &reaper).await;
        // The loop has ended: nobody asks any more.
        let _ = events.send(Event::Checked { generation, result }).await;
    }))
}

/// Probes until dropped; each [`Event::Probed`] says what one probe found.
pub(super) fn probe(health: Health, generation: Generation, reaper: Reaper, events: mpsc::Sender<Event>) -> Background {
    Background(tokio::spawn(async move {
        let mut due = interval(PROBE_INTERVAL);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let result = match &health {
                Health::Command(command) => {
                    run(command, PROBE_LIMIT, &reaper).await.map_err(|why| format!("--health-command {why}"))
                }
                Health::Url(url) => match timeout(PROBE_LIMIT, get(url)).await {
                    Ok(result) => result.map_err(|why| format!("--health-url {why}")),
                    Err(_) => Err(format!("--health-url gave no answer within {} ms", PROBE_LIMIT.as_millis())),
                },
            };
            if events.send(Event::Probed { generation, result }).await.is_err() {
                return;
            }
        }
    }))
}

/// Runs a command until it ends or is killed.
async fn run(command: &str, limit: Duration, reaper: &Reaper) -> Result<(), String> {
    let spawned = spawn::shell(command).map_err(|error| format!("can't be run: {error}"))?;
    let mut process = Process::new(spawned.pid, reaper);
    match timeout(limit, &mut process.end).await {
        Ok(end) => success(end.unwrap_or(ExitStatus::Unknown)),
        Err(_) => Err(format!("did not end within {} ms and was killed", limit.as_millis())),
    }
}

/// Whether a command ended with status 0.
///
/// # Errors
/// How it ended otherwise, in words that go on after its name.
pub(super) fn success(end: ExitStatus) -> Result<(), String> {
    match end {
        ExitStatus::Code(0) => Ok(()),
        ExitStatus::Code(code) => Err(format!("ended with status {code}")),
        ExitStatus::Signal(signal) => Err(format!("was ended by signal {signal}")),
        ExitStatus::Unknown | ExitStatus::Lost => Err("ended, the kernel does not say how".to_owned()),
    }
}

/// A running command; killed when nobody waits for it any more.
pub(super) struct Process {
    pid: u32,
    /// How it ended.
    pub(super) end: oneshot::Receiver<ExitStatus>,
}

impl Process {
    /// The process that has just been started.
    pub(super) fn new(pid: u32, reaper: &Reaper) -> Self {
        Self { pid, end: reaper.command(pid) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Still unreaped, so the number is its own: reaping and this run on the same thread, and reaping fills the
        // channel in the same step.
        if matches!(self.end.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            let _ = kill_group(self.pid, libc::SIGKILL);
        }
    }
}

async fn get(url: &HealthUrl) -> Result<(), String> {
    let stream = TcpStream::connect((url.host.as_str(), url.port)).await;
    let stream = stream.map_err(|error| format!("can't connect to {}: {error}", url.authority))?;
    let broken = |error: hyper::Error| format!("broke off: {error}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let request = hyper::Request::get(&url.path).header(HOST, &url.authority).body(String::new());
    let request = request.map_err(|error| format!("can't be asked: {error}"))?;
    // Beside the request, and ended with it. Its own error, if any, is the request's too.
    let _connection = Background(tokio::spawn(async move { drop(connection.await) }));
    let status = sender.send_request(request).await.map_err(broken)?.status();
    if status.is_success() { Ok(()) } else { Err(format!("answered {status}")) }
}
