//! A process on a terminal of its own, as somebody at a keyboard has it.

use crate::wait;
use anyhow::Context as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};

/// `script` (util-linux) with a command in the foreground of a new terminal. Dropping it hangs the terminal up.
#[derive(Debug)]
pub struct Terminal {
    script: Child,
    keyboard: ChildStdin,
}

impl Terminal {
    /// Starts a command line of `sh`; its standard streams are the terminal.
    ///
    /// # Errors
    /// There is no `script`.
    pub fn start(command: &str) -> anyhow::Result<Self> {
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--flush", "--command", command, "/dev/null"]);
        script.env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
        let mut script = script.spawn().context("starting script (util-linux)")?;
        let keyboard = script.stdin.take().context("stdin is a pipe")?;
        Ok(Self { script, keyboard })
    }

    /// Types on the keyboard; `"\x03"` is Ctrl-C.
    ///
    /// # Errors
    /// The terminal is gone.
    pub async fn types(&mut self, keys: &str) -> anyhow::Result<()> {
        self.keyboard.write_all(keys.as_bytes()).await.context("typing")
    }

    /// Waits for the end of the command; its status.
    ///
    /// # Errors
    /// It has not ended after `deadline`.
    pub async fn wait(&mut self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        Ok(wait::within(deadline, "the end of the command on the terminal", self.script.wait()).await??)
    }
}
