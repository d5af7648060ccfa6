//! Finds the programs under test: cargo builds another package's binaries for nobody, so they must be there already.

use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};

/// A folder to look in before the target folder; for tests of an installed build.
pub const FOLDER_VARIABLE: &str = "MOQ_SUPERVISE_TEST_PROGRAMS";

/// `moq-supervise`.
///
/// # Errors
/// It has not been built.
pub fn supervisor() -> anyhow::Result<PathBuf> {
    find("moq-supervise")
}

/// `moq-relay`.
///
/// # Errors
/// It has not been built.
pub fn relay() -> anyhow::Result<PathBuf> {
    find("moq-relay")
}

/// The example `echo` of the child protocol: a supervised QUIC echo server.
///
/// # Errors
/// It has not been built.
pub fn echo() -> anyhow::Result<PathBuf> {
    find("examples/echo")
}

/// The misbehaving child of this package (`src/bin/fixture`).
///
/// # Errors
/// It has not been built.
pub fn fixture() -> anyhow::Result<PathBuf> {
    find("fixture")
}

/// The example child in Python, which needs no build.
///
/// # Errors
/// The file is not where it is in the source tree.
pub fn python_child() -> anyhow::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/examples/child.py");
    path.canonicalize().with_context(|| format!("the example {} is missing", path.display()))
}

/// The folder that the running test or bench was built into: `target/debug`, say.
///
/// # Errors
/// The system does not say where the running program lies.
pub fn folder() -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().context("where the running program lies")?;
    let folder = exe.parent().context("the running program lies in no folder")?;
    Ok(match folder.file_name() {
        Some(name) if name == "deps" => folder.parent().unwrap_or(folder).to_path_buf(),
        _ => folder.to_path_buf(),
    })
}

fn find(name: &str) -> anyhow::Result<PathBuf> {
    let file = Path::new(name).file_name().context("a program has a name")?;
    let mut candidates = Vec::new();
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        candidates.push(Path::new(&folder).join(file));
    }
    candidates.push(folder()?.join(name));
    if let Some(found) = candidates.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    let looked: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
    bail!("{name} is not at {}: run `make build` first (`make test` does)", looked.join(" or "))
}
