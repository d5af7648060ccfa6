//! Finding the program to execute, afresh for each generation: an upgrade is a new file under the same name.

use crate::core::SpawnError;
use nix::unistd::{AccessFlags, access};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Resolves a program the way a shell does: a name with a slash is a path, any other is looked up in `PATH`, and
/// symbolic links are followed, so that the log names the file that really runs.
///
/// # Errors
/// `NotFound`, or `NotExecutable` when what was found is no executable file; each with one line for the operator.
pub(super) fn resolve(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, SpawnError> {
    let candidates: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![PathBuf::from(program)]
    } else {
        let path = path.map_or_else(|| OsString::from(DEFAULT_PATH), OsString::from);
        std::env::split_paths(&path).map(|directory| directory.join(program)).collect()
    };
    let name = Path::new(program).display();
    let mut unusable = None;
    for candidate in candidates {
        match usable(&candidate) {
            Ok(found) => return Ok(found),
            Err(Unusable::Missing) => {}
            Err(Unusable::Not(why)) => {
                // As shells do: a later directory may hold one that is executable.
                unusable.get_or_insert_with(|| format!("{} can't be executed: {why}", candidate.display()));
            }
        }
    }
    Err(match unusable {
        Some(line) => SpawnError::NotExecutable(line),
        None => SpawnError::NotFound(format!("{name} was not found: name an existing program with --exec")),
    })
}

enum Unusable {
    Missing,
    Not(String),
}

fn usable(candidate: &Path) -> Result<PathBuf, Unusable> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    let found = candidate.canonicalize().map_err(|error| {
        let missing = matches!(error.kind(), NotFound | NotADirectory);
        if missing { Unusable::Missing } else { Unusable::Not(error.to_string()) }
    })?;
    if !found.is_file() {
        return Err(Unusable::Not("it is not a regular file".to_owned()));
    }
    access(&found, AccessFlags::X_OK).map_err(|_| Unusable::Not("no permission; run: chmod +x".to_owned()))?;
    Ok(found)
}

/// What execvp(3) searches when there is no PATH, without the current directory.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that are looked for")]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    fn file(directory: &Path, name: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        write(&path, "#!/bin/sh\n").expect("written");
        set_permissions(&path, Permissions::from_mode(mode)).expect("mode set");
        path.canonicalize().expect("exists")
    }

    fn two() -> (TempDir, PathBuf, PathBuf, OsString) {
        let root = tempfile::tempdir().expect("a directory");
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        create_dir(&first).expect("made");
        create_dir(&second).expect("made");
        let path = std::env::join_paths([&first, &second]).expect("no colons");
        (root, first, second, path)
    }

    #[test]
    fn the_first_executable_in_path_wins() {
        let (_root, first, second, path) = two();
        file(&first, "relay", 0o644);
        let executable = file(&second, "relay", 0o755);
        assert_eq!(resolve("relay".as_ref(), Some(&path)), Ok(executable));
    }

    #[test]
    fn a_moved_link_is_seen_at_the_next_start() {
        let (_root, first, _, path) = two();
        let (old, new) = (file(&first, "relay-1", 0o755), file(&first, "relay-2", 0o755));
        let link = first.join("relay");
        symlink(&old, &link).expect("linked");
        assert_eq!(resolve("relay".as_ref(), Some(&path)), Ok(old));
        std::fs::remove_file(&link).expect("removed");
        symlink(&new, &link).expect("linked");
        assert_eq!(resolve("relay".as_ref(), Some(&path)), Ok(new.clone()));
        assert_eq!(resolve(link.as_os_str(), None), Ok(new));
    }

    #[test]
    fn a_missing_program_is_told_from_one_that_is_not_executable() {
        let (_root, first, second, path) = two();
        assert!(matches!(resolve("relay".as_ref(), Some(&path)), Err(SpawnError::NotFound(_))));
        assert!(matches!(resolve(first.join("none").as_os_str(), None), Err(SpawnError::NotFound(_))));
        file(&first, "relay", 0o644);
        assert!(matches!(resolve("relay".as_ref(), Some(&path)), Err(SpawnError::NotExecutable(_))));
        create_dir(second.join("directory")).expect("made");
        assert!(matches!(resolve("directory".as_ref(), Some(&path)), Err(SpawnError::NotExecutable(_))));
    }
}
