//! An echo service under a supervisor whose program can be replaced on disk.

use crate::manager::Manager;
use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use supervisor::state::Slots;
use tempfile::TempDir;
use tests::client::echo::{Habit, Session, Steady};
use tests::process::{Launch, Output, signal_process};
use tests::supervisor::Status;
use tests::wait::{self, PATIENCE};
use tests::{client, procfs, program, replaceable::Replaceable};
use tokio::process::{Child, Command};

/// The service, over as many supervisor processes as there will be. Dropping it kills everything that it started.
pub(crate) struct Service {
    folder: TempDir,
    /// What the supervisor runs as a relay.
    pub(crate) relay: Replaceable,
    /// The path by which the supervisor is started.
    program: PathBuf,
    flags: Vec<OsString>,
    pub(crate) manager: Option<Manager>,
    child: Option<Child>,
    /// Everything that supervisors and children wrote to stderr.
    log: PathBuf,
    /// Every process that was seen to belong to it.
    seen: Arc<Mutex<BTreeSet<u32>>>,
}

impl Service {
    /// Not started yet. With `manager`, under a service manager that keeps descriptors.
    pub(crate) fn new(flags: &[&str], manager: bool) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("moq-supervise-test-").tempdir()?;
        let program = folder.path().join("moq-supervise");
        fs::copy(program::supervisor()?, &program)?;
        let relay = Replaceable::new(folder.path());
        relay.becomes_echo()?;
        let manager = manager.then(|| Manager::new(folder.path())).transpose()?;
        let log = folder.path().join("log");
        let flags = flags.iter().map(OsString::from).collect();
        Ok(Self { folder, relay, program, flags, manager, child: None, log, seen: Arc::default() })
    }

    /// Starts a supervisor; the first one, or another one after the end of the one before.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        let log = fs::File::options().create(true).append(true).open(&self.log)?;
        self.start_with(log)
    }

    /// As [`Service::start`], with this for the log.
    pub(crate) fn start_with(&mut self, log: fs::File) -> anyhow::Result<()> {
        let path = std::env::var_os("PATH").context("PATH")?;
        // The shell gives LISTEN_PID, which only the process itself can know, and becomes the supervisor.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"LISTEN_PID=$$ exec "$0" "$@""#]).arg(&self.program).args(&self.flags);
        command
            .arg("--exec")
            .arg(self.relay.path())
            .arg("--control")
            .arg(self.control())
            .arg("--log-level")
            .arg("debug");
        command.env_clear().env("PATH", path).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        self.child = Some(match &self.manager {
            Some(manager) => manager.start(&mut command)?,
            None => command.spawn()?,
        });
        Ok(())
    }

    /// Starts a supervisor and waits until a generation is active.
    pub(crate) async fn serve(&mut self) -> anyhow::Result<Status> {
        self.start()?;
        self.wait_for("an active generation", |status| status.active().is_some()).await
    }

    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.child.as_ref().and_then(Child::id).context("a supervisor runs")
    }

    /// SIGKILL, and the end.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        signal_process(self.pid()?, Signal::SIGKILL)?;
        self.end().await.map(drop)
    }

    /// Waits for the supervisor's end; its status, if it has one.
    pub(crate) async fn end(&mut self) -> anyhow::Result<Option<i32>> {
        let mut child = self.child.take().context("a supervisor runs")?;
        let status = wait::within(2 * PATIENCE, "the end of the supervisor", child.wait()).await;
        let status = status.with_context(|| self.tail())??;
        Ok(status.code())
    }

    /// Puts another file of the same content at the program's path, by a rename.
    pub(crate) fn replace_program(&self) -> anyhow::Result<()> {
        let new = self.folder.path().join("new");
        fs::copy(program::supervisor()?, &new)?;
        fs::rename(new, &self.program).context("replacing the supervisor's program")
    }

    /// Makes what the manager keeps a state that another version of the supervisor has written.
    pub(crate) fn ages_the_state(&self) -> anyhow::Result<()> {
        self.changes_the_state(1, |document| {
            document["mood"] = "unknown to this version".into();
            document["exact"] = serde_json::json!({"another": "core"});
        })
    }

    /// Writes another document into what the manager keeps, of a format so many later.
    pub(crate) fn changes_the_state(&self, later: u32, change: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
        let (mut slots, content) = Slots::open(self.manager.as_ref().context("a manager")?.kept("state")?)?;
        let mut document: Value = serde_json::from_slice(&content.bytes)?;
        change(&mut document);
        slots.write(content.format + later, &serde_json::to_vec(&document)?)?;
        Ok(())
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn control(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    /// A control command.
    pub(crate) async fn command(&self, args: &[&str]) -> anyhow::Result<Output> {
        let launch = Launch::new(program::supervisor()?).args(args).args(["--control"]).args([self.control()]);
        launch.run(3 * PATIENCE).await
    }

    pub(crate) async fn status(&self) -> anyhow::Result<Status> {
        let output = self.command(&["status", "--json"]).await?;
        ensure!(output.status.success(), "{}", output.stderr);
        let status: Status = serde_json::from_str(&output.stdout)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(status.generations.iter().filter_map(|generation| generation.pid));
        Ok(status)
    }

    pub(crate) async fn wait_for(&self, what: &str, condition: impl Fn(&Status) -> bool) -> anyhow::Result<Status> {
        let found = wait::eventually(2 * PATIENCE, what, async || {
            let Ok(status) = self.status().await else { return Ok(None) };
            Ok(condition(&status).then_some(status))
        });
        found.await.with_context(|| self.tail())
    }

    /// An upgrade that works; returns who is active after it.
    pub(crate) async fn upgrade(&self) -> anyhow::Result<u32> {
        let output = self.command(&["upgrade"]).await?;
        ensure!(output.status.success(), "{}: {}{}", output.status, output.stderr, self.tail());
        Ok(self.status().await?.active().context("one is active")?.generation)
    }

    pub(crate) async fn address(&self) -> anyhow::Result<SocketAddr> {
        let status = self.status().await?;
        Ok(client::reachable(status.listeners.first().context("a listener")?.address.parse()?))
    }

    /// A session that echoes all the time.
    pub(crate) async fn session(&self) -> anyhow::Result<Steady> {
        let habit = Habit { pause: Duration::from_millis(10), size: 100, rebind: false };
        Ok(Steady::start(Session::connect(self.address().await?).await?, habit))
    }

    /// The kernel's numbers of the UDP sockets that the supervisor holds: one number is one socket, whoever holds it.
    pub(crate) fn sockets(&self) -> anyhow::Result<BTreeSet<u64>> {
        procfs::udp_inodes(self.pid()?)
    }

    /// How many lines of the log contain this, those for debugging left out.
    pub(crate) fn lines_with(&self, text: &str) -> usize {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains(text) && !line.contains("DEBUG")).count()
    }

    pub(crate) fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(pid) = self.child.as_ref().and_then(Child::id) {
            seen.extend(procfs::descendants(pid));
            seen.insert(pid);
        }
        for pid in seen {
            let _gone_already = signal_process(pid, Signal::SIGKILL);
        }
    }
}

/// That this session has gone on until now and still does.
pub(crate) async fn goes_on(session: &Steady) -> anyhow::Result<()> {
    let before = session.report().echoes;
    wait::until(PATIENCE, "ten more echoes", || {
        let report = session.report();
        ensure!(report.failure.is_none(), "{report:?}");
        Ok(report.echoes >= before + 10)
    })
    .await
}
