//! The supervisor's own program on disk, and whether it is another one by now.

use nix::unistd::{AccessFlags, access};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The path by which this process was started, and the file that was there.
///
/// Not /proc/self/exe: that follows the file, wherever it is moved, and never shows the one that was put in its place.
#[derive(Clone, Debug)]
pub struct Own {
    path: PathBuf,
    file: Identity,
}

/// What tells one content of a path from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Own {
    /// From `argv[0]`: a path as it is, relative to `folder`; a name is looked up in `path`, as the shell did. Links are not
    /// resolved: one that is turned to another file is a change. `None` when there is no such file.
    ///
    /// To be called first thing, so that the file is the one that runs.
    #[must_use]
    pub fn find(name: &OsStr, path: Option<&OsStr>, folder: &Path) -> Option<Self> {
        let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
            vec![folder.join(name)]
        } else {
            std::env::split_paths(path?).map(|in_path| folder.join(in_path).join(name)).collect()
        };
        let executable = |candidate: &PathBuf| access(candidate, AccessFlags::X_OK).is_ok();
        let path = candidates.into_iter().find(executable)?;
        let file = Identity::of(&path)?;
        Some(Self { path, file })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that is there now, if it is another one. If none is, there is nothing to change to.
    #[must_use]
    pub fn other(&self) -> Option<Identity> {
        Identity::of(&self.path).filter(|file| *file != self.file)
    }

    /// Whether another file is there.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.other().is_some()
    }
}

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that are looked for")]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, remove_file, rename, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn program(path: &Path, text: &str) {
        write(path, text).expect("written");
        set_permissions(path, Permissions::from_mode(0o755)).expect("set");
    }

    #[test]
    fn a_rename_over_it_a_turned_link_and_a_write_in_place_are_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let [program_1, program_2, link] = ["one", "two", "link"].map(|name| folder.path().join(name));
        program(&program_1, "1");
        symlink(&program_1, &link).expect("linked");
        let find = || Own::find(OsStr::new("./link"), None, folder.path()).expect("found");
        let own = find();
        assert!(!own.has_changed());
        program(&program_2, "2");
        rename(&program_2, &program_1).expect("renamed");
        assert!(own.has_changed());

        let own = find();
        program(&program_2, "2");
        let other = folder.path().join("other");
        symlink(&program_2, &other).expect("linked");
        rename(&other, &link).expect("renamed");
        assert!(own.has_changed());

        let own = find();
        program(&program_2, "another length");
        assert!(own.has_changed());

        // And each is told from the one before.
        let seen = own.other();
        assert_eq!(own.other(), seen);
        program(&program_2, "one more length, of a file that was asked already");
        assert!(seen.is_some() && own.other() != seen);
    }

    #[test]
    fn a_file_that_is_gone_is_no_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        program(&path, "1");
        let own = Own::find(path.as_os_str(), None, Path::new("/")).expect("found");
        remove_file(&path).expect("removed");
        assert!(!own.has_changed());
        create_dir(&path).expect("made");
        assert!(!own.has_changed());
    }

    #[test]
    fn a_name_is_looked_up_as_the_shell_did() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        for folder in [&first, &second] {
            create_dir(folder).expect("made");
        }
        write(first.join("program"), "not executable").expect("written");
        program(&second.join("program"), "1");
        let path = std::env::join_paths([&first, &second]).expect("no colons");
        let own = Own::find(OsStr::new("program"), Some(&path), Path::new("/")).expect("found");
        assert_eq!(own.path(), second.join("program"));
        assert!(Own::find(OsStr::new("program"), None, Path::new("/")).is_none());
        assert!(Own::find(OsStr::new("-other"), Some(&path), Path::new("/")).is_none());
    }
}
