//! A process that may open no descriptor.

use anyhow::{Context as _, ensure};
use std::process::Command;

/// While this lives, that process can't open, accept or be given any descriptor. Those that it has go on working.
#[derive(Debug)]
pub struct Starved {
    pid: u32,
    before: String,
}

impl Starved {
    /// Takes them from it, by the limit RLIMIT_NOFILE (prlimit(2)), through the program `prlimit` of util-linux.
    ///
    /// # Errors
    /// There is no such program or process, or it may not be touched.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let before = prlimit(pid, &["--nofile", "--raw", "--noheadings", "--output", "SOFT"])?.trim().to_owned();
        prlimit(pid, &["--nofile=0:"])?;
        Ok(Self { pid, before })
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        // An error: it has ended.
        drop(prlimit(self.pid, &[&format!("--nofile={}:", self.before)]));
    }
}

fn prlimit(pid: u32, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("prlimit").args(["--pid", &pid.to_string()]).args(args).output();
    let output = output.context("running prlimit, which is in the package util-linux")?;
    ensure!(output.status.success(), "prlimit {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("prlimit writes text")
}
