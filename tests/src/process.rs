//! One process under test: started with an environment of its own, its stderr kept, ended when dropped.

use crate::{procfs, wait};
use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// What to start, and how.
#[derive(Clone, Debug)]
pub struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
}

impl Launch {
    /// `program` without arguments, in an environment that holds only PATH and a log filter.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let env = vec![("PATH".into(), path), ("RUST_LOG".into(), "info".into())];
        Self { program: program.into(), args: Vec::new(), env, folder: None }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable; a later one of the same name wins.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs it in `folder`.
    #[must_use]
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_owned());
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.kill_on_drop(true).stdin(Stdio::null());
        command
    }

    /// Starts it and goes on.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(&self) -> anyhow::Result<Process> {
        let mut command = self.command();
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {}", self.program.display()))?;
        let pid = child.id().context("a process that has just been started has a pid")?;
        let stderr = child.stderr.take().context("stderr is a pipe")?;
        let lines = Lines::default();
        let sink = lines.clone();
        tokio::spawn(async move {
            let mut reader = BufReader::new(stderr).split(b'\n');
            while let Ok(Some(line)) = reader.next_segment().await {
                sink.push(without_colours(&String::from_utf8_lossy(&line)));
            }
        });
        Ok(Process { child, pid, lines })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It can't be started, or has not ended after `deadline` (then it is killed).
    pub async fn run(&self, deadline: Duration) -> anyhow::Result<Output> {
        let mut command = self.command();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = std::time::Instant::now();
        let what = format!("{} {:?}", self.program.display(), self.args);
        let output =
            wait::within(deadline, &what, command.output()).await?.with_context(|| format!("running {what}"))?;
        Ok(Output {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: start.elapsed(),
        })
    }
}

/// What a process that ran to its end left.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its stdout.
    pub stdout: String,
    /// All of its stderr.
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

/// The lines of a running process, in order.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn push(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A running process. Dropping it kills it and those of its descendants that are still there.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: u32,
    lines: Lines,
}

impl Process {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it and its children have written to stderr so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.all()
    }

    /// How many of its lines contain `text`.
    #[must_use]
    pub fn count(&self, text: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(text)).count()
    }

    /// The first line that contains `text`, now or until `deadline`.
    ///
    /// # Errors
    /// No such line came: the error quotes the last lines that did.
    pub async fn wait_for_line(&self, text: &str, deadline: Duration) -> anyhow::Result<String> {
        let what = format!("a line with {text:?}");
        let line = || self.lines().into_iter().find(|line| line.contains(text));
        wait::eventually(deadline, &what, async || Ok(line())).await.with_context(|| self.tail())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        signal_process(self.pid, signal)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It has not ended after `deadline`.
    pub async fn wait(&mut self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        let ended = wait::within(deadline, "the end of the process", self.child.wait()).await;
        Ok(ended.with_context(|| self.tail())??)
    }

    /// True until it has ended.
    ///
    /// # Errors
    /// The system does not say.
    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Its last lines, to go with an error.
    #[must_use]
    pub fn tail(&self) -> String {
        let lines = self.lines();
        let from = lines.len().saturating_sub(30);
        format!("process {} said last:\n{}", self.pid, lines[from..].join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The children of a supervisor live in their own process groups and outlive it by design, so they are killed
        // one by one. They are listed first: when their parent is gone, nothing says whose they were.
        let descendants = procfs::descendants(self.pid);
        if matches!(self.child.try_wait(), Ok(None)) {
            let _gone_already = signal_process(self.pid, Signal::SIGKILL);
        }
        for pid in descendants {
            let _gone_already = signal_process(pid, Signal::SIGKILL);
        }
    }
}

/// Sends a signal to a process that need not be our child.
///
/// # Errors
/// It is gone.
pub fn signal_process(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let Ok(raw) = i32::try_from(pid) else { bail!("{pid} is no pid") };
    kill(Pid::from_raw(raw), signal).with_context(|| format!("sending {signal} to process {pid}"))
}

/// Takes the escape sequences out that some programs write even into a pipe.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_colour, text)| text);
    }
    plain.push_str(rest);
    plain
}
