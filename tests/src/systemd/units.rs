//! The unit files under `contrib/systemd`, as shipped and with a line missing.

use anyhow::{Context as _, bail};
use std::fs;
use std::path::Path;

/// The text of a file under `contrib/systemd`.
///
/// # Errors
/// There is none of that name.
pub fn shipped(name: &str) -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/systemd").join(name);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// A unit's text, to be changed line by line.
#[derive(Clone, Debug)]
pub struct Units {
    text: String,
}

impl Units {
    /// The shipped file of this name.
    ///
    /// # Errors
    /// As [`shipped`].
    pub fn shipped(name: &str) -> anyhow::Result<Self> {
        Ok(Self { text: shipped(name)? })
    }

    /// Without the one line that begins like this.
    ///
    /// # Errors
    /// No line begins so, or several do.
    pub fn without(self, beginning: &str) -> anyhow::Result<Self> {
        let gone = self.line(beginning)?;
        let kept: Vec<&str> = self.text.lines().filter(|line| *line != gone).collect();
        Ok(Self { text: kept.join("\n") + "\n" })
    }

    /// The one line that begins like this.
    fn line(&self, beginning: &str) -> anyhow::Result<&str> {
        let found: Vec<&str> = self.text.lines().filter(|line| line.starts_with(beginning)).collect();
        let [line] = found[..] else { bail!("{} lines begin with {beginning:?}", found.len()) };
        Ok(line)
    }

    /// With `other` in place of the one line that begins like this.
    ///
    /// # Errors
    /// As [`Self::without`].
    pub fn changed(self, beginning: &str, other: &str) -> anyhow::Result<Self> {
        let line = self.line(beginning)?.to_owned();
        Ok(self.with(&line, other))
    }

    /// With `other` in place of the one line `line`.
    ///
    /// A text without that line stays as it is, so that this can be told of one that lacks it.
    #[must_use]
    pub fn with(self, line: &str, other: &str) -> Self {
        let replaced = self.text.lines().map(|found| if found == line { other } else { found });
        Self { text: replaced.collect::<Vec<_>>().join("\n") + "\n" }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}
