//! A supervisor on a terminal of its own, as somebody at a keyboard has it.

use crate::process::signal_process;
use crate::procfs;
use crate::supervisor::{Setup, Supervisor};
use crate::wait::{self, PATIENCE};
use anyhow::Context as _;
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

/// Starts the supervisor in the foreground of a new terminal, by `script` (util-linux), whose keyboard is a pipe. It is
/// the leader of the terminal's session, so it is also the one that a hang-up is for.
const LINE: &str = "mkfifo keyboard && exec script --quiet --return --flush --command \"exec $*\" /dev/null <>keyboard";

/// A supervisor that serves on a terminal.
#[derive(Debug)]
pub struct Terminal {
    /// The supervisor; its `process` is `script`, which ends with the supervisor's status.
    pub supervisor: Supervisor,
    /// The process of the supervisor itself.
    pub pid: u32,
    keyboard: File,
}

impl Terminal {
    /// Starts a supervisor of `exec` with these flags and arguments of the child, none of which may have a space in it.
    ///
    /// # Errors
    /// There is no `script`, or the child does not become active.
    pub async fn serve(exec: PathBuf, flags: &[&str], child: &[&str]) -> anyhow::Result<Self> {
        let supervisor = Setup::by_shell(LINE, exec)?.flags(flags).child(child).serve().await?;
        let named = |pid: &u32| procfs::status_field(*pid, "Name").is_ok_and(|name| name == "moq-supervise");
        let below = procfs::descendants(supervisor.process.pid());
        let pid = below.into_iter().find(named).context("the supervisor is below script")?;
        let keyboard = File::options().read(true).write(true).open(supervisor.folder().join("keyboard"))?;
        Ok(Self { supervisor, pid, keyboard })
    }

    /// Types on the keyboard; `"\u{3}"` is Ctrl-C.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn types(&mut self, keys: &str) -> anyhow::Result<()> {
        self.keyboard.write_all(keys.as_bytes()).context("typing")
    }

    /// Takes the terminal away.
    ///
    /// # Errors
    /// It does not go.
    pub async fn hang_up(&mut self) -> anyhow::Result<()> {
        self.supervisor.process.signal(Signal::SIGKILL)?;
        self.supervisor.process.wait(PATIENCE).await?;
        // 0 is the number of no terminal: the seventh field of proc_pid_stat(5).
        wait::until(PATIENCE, "a supervisor without a terminal", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
            let after_name = stat.rsplit_once(')').context("stat has a name")?.1;
            Ok(after_name.split_whitespace().nth(4) == Some("0"))
        })
        .await
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // After a hang-up it is no descendant of ours any more.
        let mut all = procfs::descendants(self.pid);
        all.push(self.pid);
        for pid in all.into_iter().filter(|pid| procfs::is_alive(*pid)) {
            let _gone_already = signal_process(pid, Signal::SIGKILL);
        }
    }
}
