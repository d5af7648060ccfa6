//! A real `moq-supervise` under test, with its control socket in a temporary folder.

use crate::process::{Launch, Output, Process};
use crate::wait::{self, PATIENCE};
use crate::{client, program};
use anyhow::{Context as _, ensure};
use serde::Deserialize;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What to supervise, and how.
#[derive(Debug)]
pub struct Setup {
    folder: TempDir,
    launch: Launch,
    exec: PathBuf,
    child_args: Vec<std::ffi::OsString>,
}

impl Setup {
    /// Supervises the program `exec`.
    ///
    /// # Errors
    /// There is no supervisor, or no room for a temporary folder.
    pub fn new(exec: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("moq-supervise-test-").tempdir().context("a temporary folder")?;
        let launch = Launch::new(program::supervisor()?).folder(&folder);
        Ok(Self { folder, launch, exec: exec.into(), child_args: Vec::new() })
    }

    /// As [`Setup::new`], but the supervisor is started by this line of `sh`, in which `"$@"` stands for it with its
    /// arguments.
    ///
    /// # Errors
    /// As [`Setup::new`].
    pub fn by_shell(line: &str, exec: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let setup = Self::new(exec)?;
        let launch = Launch::new("/bin/sh").args(["-c", line, "sh"]).args([program::supervisor()?]);
        Ok(Self { launch: launch.folder(&setup.folder), ..setup })
    }

    /// Supervises another program than that of [`Setup::new`], one in [`Setup::folder`] for example.
    #[must_use]
    pub fn exec(mut self, exec: impl Into<PathBuf>) -> Self {
        self.exec = exec.into();
        self
    }

    /// Adds flags of the supervisor.
    #[must_use]
    pub fn flags(mut self, flags: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.launch = self.launch.args(flags);
        self
    }

    /// Adds arguments of the child.
    #[must_use]
    pub fn child(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.child_args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable of the supervisor.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.launch = self.launch.env(name, value);
        self
    }

    /// The temporary folder, in which the supervisor and its children run.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(self) -> anyhow::Result<Supervisor> {
        let control = self.folder.path().join("control.sock");
        let launch = self.launch.args([OsStr::new("--exec"), self.exec.as_os_str()]);
        let launch =
            launch.args([OsStr::new("--control"), control.as_os_str(), OsStr::new("--")]).args(self.child_args);
        Ok(Supervisor { process: launch.start()?, control, folder: self.folder })
    }

    /// Starts it and waits until its first generation is active.
    ///
    /// # Errors
    /// It can't be started, or the first generation is not active within [`PATIENCE`].
    pub async fn serve(self) -> anyhow::Result<Supervisor> {
        let supervisor = self.start()?;
        supervisor.wait_for("an active generation", |status| status.active().is_some()).await?;
        Ok(supervisor)
    }
}

/// A running supervisor. Dropping it kills it and its children.
#[derive(Debug)]
pub struct Supervisor {
    /// Its process, with the lines of its children among its own.
    pub process: Process,
    control: PathBuf,
    folder: TempDir,
}

impl Supervisor {
    /// The path of its control socket.
    #[must_use]
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Its temporary folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a control command to its end.
    ///
    /// # Errors
    /// It can't be run, or takes longer than three times [`PATIENCE`].
    pub async fn command(&self, command: &str, args: &[&str]) -> anyhow::Result<Output> {
        let launch = Launch::new(program::supervisor()?).args([command]).args(args);
        launch.args([OsStr::new("--control"), self.control.as_os_str()]).run(3 * PATIENCE).await
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// It does not answer, or not in the form that its documentation promises.
    pub async fn status(&self) -> anyhow::Result<Status> {
        let output = self.command("status", &["--json"]).await?;
        ensure!(output.status.success(), "status ended with {}: {}", output.status, output.stderr);
        serde_json::from_str(&output.stdout).with_context(|| format!("status said {}", output.stdout))
    }

    /// Waits until `condition` holds of its status.
    ///
    /// # Errors
    /// It does not hold within [`PATIENCE`]: the error says `what` was awaited, and what was said last.
    pub async fn wait_for(&self, what: &str, condition: impl Fn(&Status) -> bool) -> anyhow::Result<Status> {
        let found = status_where(what, condition, async || self.status().await).await;
        found.with_context(|| self.process.tail())
    }

    /// Replaces the active generation; returns the new one at its commit.
    ///
    /// # Errors
    /// The upgrade was denied, failed or was rolled back.
    pub async fn upgrade(&self) -> anyhow::Result<u32> {
        let output = self.command("upgrade", &[]).await?;
        ensure!(
            output.status.success(),
            "upgrade ended with {}: {}{}",
            output.status,
            output.stderr,
            self.process.tail()
        );
        self.status().await?.active().map(|active| active.generation).context("after an upgrade one is active")
    }

    /// Where a client on this machine reaches the first listener.
    ///
    /// # Errors
    /// There is none yet.
    pub async fn address(&self) -> anyhow::Result<SocketAddr> {
        let status = self.status().await?;
        let listener = status.listeners.first().with_context(|| format!("no listener in {status:?}"))?;
        let address: SocketAddr = listener.address.parse().with_context(|| format!("the address in {listener:?}"))?;
        Ok(client::reachable(address))
    }
}

/// The part of `status --json` that the tests read.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// "idle", "starting", "serving", "failed", "stopping", "leaving" or "ended".
    pub phase: String,
    /// The live generations, oldest first.
    pub generations: Vec<GenerationStatus>,
    /// What is listened on.
    pub listeners: Vec<ListenerStatus>,
}

/// One generation in a [`Status`].
#[derive(Clone, Debug, Deserialize)]
pub struct GenerationStatus {
    /// Its number.
    pub generation: u32,
    /// "starting", "ready", "active", "standby", "draining" or "ending".
    pub state: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Its open sessions, as it said last.
    pub sessions: u64,
    /// Its completed handshakes, as it said last.
    pub handshakes: u64,
    /// Packets of others that reached it, as it said last.
    pub foreign: u64,
    /// Until its deadline, if one is running.
    pub deadline_ms: Option<u64>,
}

/// One listener in a [`Status`].
#[derive(Clone, Debug, Deserialize)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// Where it is bound.
    pub address: String,
    /// How many sockets it has.
    pub members: usize,
}

impl Status {
    /// The active generation.
    #[must_use]
    pub fn active(&self) -> Option<&GenerationStatus> {
        self.generations.iter().find(|generation| generation.state == "active")
    }

    /// The state of the generation of this number; "gone" if it is not live.
    #[must_use]
    pub fn state(&self, number: u32) -> &str {
        self.generation(number).map_or("gone", |generation| &generation.state)
    }

    /// The open sessions of the generation of this number.
    #[must_use]
    pub fn sessions(&self, number: u32) -> u64 {
        self.generation(number).map_or(0, |generation| generation.sessions)
    }

    /// The completed handshakes of the generation of this number.
    #[must_use]
    pub fn handshakes(&self, number: u32) -> u64 {
        self.generation(number).map_or(0, |generation| generation.handshakes)
    }

    /// The generation of this number.
    #[must_use]
    pub fn generation(&self, number: u32) -> Option<&GenerationStatus> {
        self.generations.iter().find(|generation| generation.generation == number)
    }
}

/// Asks for the status until `condition` holds of it; a supervisor that does not answer yet is waited for as well.
///
/// # Errors
/// It does not hold within [`PATIENCE`]: the error says `what` was awaited, and what the status was last.
pub(crate) async fn status_where(
    what: &str,
    condition: impl Fn(&Status) -> bool,
    ask: impl AsyncFn() -> anyhow::Result<Status>,
) -> anyhow::Result<Status> {
    let mut last = None;
    let found = wait::eventually(PATIENCE, what, async || {
        let Ok(status) = ask().await else { return Ok(None) };
        let holds = condition(&status);
        last = Some(status.clone());
        Ok(holds.then_some(status))
    });
    let found = found.await;
    found.with_context(|| format!("status was {last:?}"))
}
