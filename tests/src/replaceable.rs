//! A program that can be replaced by another on disk, as an installation of a new version does it.

use crate::program;
use anyhow::Context as _;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A path whose program the test chooses, again and again. The next generation runs what was chosen last.
#[derive(Debug)]
pub struct Replaceable {
    folder: PathBuf,
    path: PathBuf,
}

impl Replaceable {
    /// The path `program` in `folder`; there is nothing yet.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), path: folder.join("program") }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on it is `program` with `args`.
    ///
    /// # Errors
    /// The folder can't be written to.
    pub fn becomes(&self, program: &Path, args: &[&str]) -> anyhow::Result<()> {
        let mut text = format!("#!/bin/sh\nexec '{}'", program.display());
        for arg in args {
            write!(text, " '{arg}'")?;
        }
        self.contains(&text, 0o755)
    }

    /// From now on it is the echo server on any port, IPv4 and IPv6.
    ///
    /// # Errors
    /// As [`Self::becomes`], or there is no echo server.
    pub fn becomes_echo(&self) -> anyhow::Result<()> {
        self.becomes(&program::echo()?, &["[::]:0"])
    }

    /// From now on it is a child that plays `script`, a step a line.
    ///
    /// # Errors
    /// As [`Self::becomes`], or there is no fixture.
    pub fn plays(&self, script: &str) -> anyhow::Result<()> {
        let file = self.folder.join(format!("script-{:016x}", rand::random::<u64>()));
        fs::write(&file, script).with_context(|| format!("writing {}", file.display()))?;
        self.becomes(&program::fixture()?, &[&file.to_string_lossy()])
    }

    /// From now on the file has this text and these permissions.
    ///
    /// # Errors
    /// The folder can't be written to.
    pub fn contains(&self, text: &str, mode: u32) -> anyhow::Result<()> {
        let unfinished = self.path.with_extension("unfinished");
        fs::write(&unfinished, text).with_context(|| format!("writing {}", unfinished.display()))?;
        fs::set_permissions(&unfinished, Permissions::from_mode(mode))?;
        fs::rename(&unfinished, &self.path).context("putting the program in place")
    }

    /// From now on there is no program.
    ///
    /// # Errors
    /// There was none.
    pub fn is_removed(&self) -> anyhow::Result<()> {
        fs::remove_file(&self.path).context("removing the program")
    }
}
