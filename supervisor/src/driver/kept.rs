//! Secrets that children asked to keep, for later generations (a generated certificate and its key).

use crate::state::{KeptFile, names};
use protocol::channel::{read_memfd, sealed_memfd};
use protocol::message::{MAX_KEPT, MAX_KEPT_BYTES, is_name};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// By name; at most [`MAX_KEPT`] of at most [`MAX_KEPT_BYTES`] each.
#[derive(Debug, Default)]
pub(super) struct Kept {
    by_name: BTreeMap<String, KeptFile>,
    /// The number of the next file: one that replaces another is another file under another name.
    next: u64,
}

impl Kept {
    /// What an earlier process kept.
    pub(super) fn restored(files: Vec<KeptFile>) -> Self {
        let next = files.iter().map(|file| file.number.saturating_add(1)).max().unwrap_or(0);
        Self { by_name: files.into_iter().map(|file| (file.name.clone(), file)).collect(), next }
    }

    /// Keeps the content of the one descriptor beside a `keep` message; the same name again replaces it.
    ///
    /// # Errors
    /// One line for the operator when the message is not as it must be.
    pub(super) fn keep(&mut self, name: String, fds: &[OwnedFd]) -> Result<(), String> {
        if !is_name(&name) {
            return Err(format!("keep: the name {name:?} is not 1 to 64 of a-z 0-9 - _ ."));
        }
        let [memfd] = fds else {
            return Err(format!("keep {name}: {} descriptors beside the message instead of one memfd", fds.len()));
        };
        if !self.by_name.contains_key(&name) && self.by_name.len() >= MAX_KEPT {
            return Err(format!("keep {name}: {MAX_KEPT} secrets are kept already"));
        }
        let content = read_memfd(memfd.as_fd(), MAX_KEPT_BYTES).map_err(|error| format!("keep {name}: {error}"))?;
        // A file of our own: the child's need not be sealed.
        let file = sealed_memfd(&name, &content).map_err(|error| format!("keep {name}: {error}"))?;
        self.by_name.insert(name.clone(), KeptFile { name, number: self.next, file });
        self.next += 1;
        Ok(())
    }

    /// The names, with one memfd each, as `adopt` has them.
    ///
    /// # Errors
    /// As dup(2).
    pub(super) fn memfds(&self) -> io::Result<(Vec<String>, Vec<OwnedFd>)> {
        let files: io::Result<Vec<OwnedFd>> = self.by_name.values().map(|kept| kept.file.try_clone()).collect();
        Ok((self.by_name.keys().cloned().collect(), files?))
    }

    /// For another process: by the child's names, those of the descriptors.
    pub(super) fn entries(&self) -> BTreeMap<String, String> {
        self.by_name.iter().map(|(name, kept)| (name.clone(), names::kept(kept.number))).collect()
    }

    /// The descriptors by their names.
    pub(super) fn fds(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        self.by_name.values().map(|kept| (names::kept(kept.number), kept.file.as_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_comes_back_and_the_same_name_replaces_it() {
        let mut kept = Kept::default();
        for content in [&b"old"[..], b"new"] {
            let memfd = sealed_memfd("test", content).expect("made");
            kept.keep("tls".to_owned(), &[memfd]).expect("kept");
        }
        let (names, memfds) = kept.memfds().expect("made");
        assert_eq!(names, ["tls"]);
        let [memfd] = &memfds[..] else { panic!("one memfd") };
        assert_eq!(read_memfd(memfd.as_fd(), 10).expect("read").as_slice(), b"new");
    }

    #[test]
    fn names_counts_and_descriptors_are_checked() {
        let memfd = || sealed_memfd("test", b"x").expect("made");
        let mut kept = Kept::default();
        assert!(kept.keep("Big Name".to_owned(), &[memfd()]).is_err());
        assert!(kept.keep("none".to_owned(), &[]).is_err());
        assert!(kept.keep("two".to_owned(), &[memfd(), memfd()]).is_err());
        for number in 0..MAX_KEPT {
            kept.keep(format!("name-{number}"), &[memfd()]).expect("room");
        }
        assert!(kept.keep("one-more".to_owned(), &[memfd()]).is_err());
        kept.keep("name-0".to_owned(), &[memfd()]).expect("replaced");
        let socket = std::os::unix::net::UnixDatagram::unbound().expect("made");
        assert!(kept.keep("name-0".to_owned(), &[socket.into()]).is_err());
    }
}
