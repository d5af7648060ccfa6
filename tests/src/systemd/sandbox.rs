//! One systemd, and how to give it orders.

use crate::process::{Launch, Output};
use crate::program;
use crate::wait::PATIENCE;
use anyhow::{Context as _, ensure};
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The programs under test as the sandbox sees them.
const PROGRAMS: &str = "/opt/moq";

/// How long a command may take: longer than the longest stop that a test asks for.
const LONGEST_COMMAND: Duration = Duration::from_secs(90);

/// A running systemd. Dropping it ends everything that runs under it.
#[derive(Debug)]
pub struct Sandbox {
    script: Child,
    init: u32,
}

impl Sandbox {
    /// Starts one and waits until it is up.
    ///
    /// # Errors
    /// The machine lacks something that it needs: the error quotes the script, which names it.
    pub fn start() -> anyhow::Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/sandbox");
        let mut command = Command::new(&path);
        command.arg(program::folder()?).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().with_context(|| format!("starting {}", path.display()))?;
        let stdout = script.stdout.take().context("stdout is a pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let init = line.trim().parse();
        let init = init.with_context(|| format!("{} did not start systemd; it says why above", path.display()))?;
        Ok(Self { script, init })
    }

    /// Its network namespace.
    ///
    /// # Errors
    /// It has ended.
    pub fn network(&self) -> anyhow::Result<File> {
        File::open(format!("/proc/{}/ns/net", self.init)).context("the sandbox's network namespace")
    }

    /// A path of the sandbox as this process reaches it.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.init))
    }

    /// A built program as the sandbox reaches it: `moq-relay`, or `examples/echo`.
    #[must_use]
    pub fn program(&self, name: &str) -> String {
        format!("{PROGRAMS}/{name}")
    }

    /// Puts a file in place at once, as an installation does it. Folders are made.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, inside: &str, text: &str, mode: u32) -> anyhow::Result<()> {
        let (path, unfinished) = self.to_be_installed(inside)?;
        fs::write(&unfinished, text).with_context(|| format!("writing {inside}"))?;
        fs::set_permissions(&unfinished, Permissions::from_mode(mode))?;
        fs::rename(&unfinished, &path).with_context(|| format!("putting {inside} in place"))
    }

    /// Puts a copy of a built program in place.
    ///
    /// # Errors
    /// There is no such program, or no room.
    pub fn install(&self, name: &str, inside: &str) -> anyhow::Result<()> {
        let (path, unfinished) = self.to_be_installed(inside)?;
        fs::copy(self.path(&self.program(name)), &unfinished).with_context(|| format!("copying {name}"))?;
        fs::rename(&unfinished, &path).with_context(|| format!("putting {inside} in place"))
    }

    fn to_be_installed(&self, inside: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        let unfinished = path.with_extension("unfinished");
        Ok((path, unfinished))
    }

    /// Runs a command inside to its end.
    ///
    /// # Errors
    /// It can't be run, or takes longer than `LONGEST_COMMAND`.
    pub async fn run(&self, command: &[&str]) -> anyhow::Result<Output> {
        let root = format!("/proc/{}/root", self.init);
        let into =
            [format!("--target={}", self.init), "--all".into(), format!("--root={root}"), format!("--wd={root}")];
        Launch::new("nsenter").args(into).args(["--"]).args(command).run(LONGEST_COMMAND).await
    }

    /// [`Self::run`] for a command that must succeed; returns what it printed.
    ///
    /// # Errors
    /// It did not succeed: the error quotes what it said.
    pub async fn must(&self, command: &[&str]) -> anyhow::Result<String> {
        let output = self.run(command).await?;
        ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, output.stderr);
        Ok(output.stdout)
    }

    /// The journal, to go with an error.
    pub async fn journal(&self) -> String {
        let command = ["journalctl", "--no-pager", "--lines=60", "--output=short-precise", "--no-hostname"];
        match self.must(&command).await {
            Ok(text) => format!("the journal said last:\n{text}"),
            Err(error) => format!("no journal: {error:#}"),
        }
    }

    /// Whether its cgroups count memory: a machine that has the controller in a hierarchy of version 1 can't lend it.
    ///
    /// # Errors
    /// The sandbox is gone.
    pub fn has_memory_controller(&self) -> anyhow::Result<bool> {
        let text = fs::read_to_string(self.path("/sys/fs/cgroup/cgroup.controllers")).context("its controllers")?;
        Ok(text.split_whitespace().any(|name| name == "memory"))
    }

    /// The processes in the cgroup of a unit, by their numbers on this machine (not the sandbox's).
    ///
    /// # Errors
    /// The cgroup can't be read.
    pub fn processes(&self, unit: &str) -> anyhow::Result<Vec<u32>> {
        let path = self.path(&format!("/sys/fs/cgroup/system.slice/{unit}/cgroup.procs"));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            // ENODEV: it was removed while it was open.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(Vec::new()),
            Err(error) => return Err(error).context(format!("the cgroup of {unit}")),
        };
        text.lines().map(|line| line.parse().with_context(|| format!("{line:?} is no pid"))).collect()
    }

    /// Waits until nothing is left in the cgroup of a unit.
    ///
    /// # Errors
    /// Something stays: the error names it.
    pub async fn empty(&self, unit: &str) -> anyhow::Result<()> {
        let empty = crate::wait::until(PATIENCE, "an empty cgroup", || Ok(self.processes(unit)?.is_empty())).await;
        empty.with_context(|| {
            let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let left: Vec<_> = self.processes(unit).unwrap_or_default().iter().map(name).collect();
            format!("left behind: {left:?}")
        })
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The end of its standard input ends the script, which takes everything with it.
        drop(self.script.stdin.take());
        let _ended = self.script.wait();
    }
}
