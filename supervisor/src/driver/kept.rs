//! Secrets that children asked to keep, for later generations (a generated certificate and its key).

use protocol::channel::{read_memfd, sealed_memfd};
use protocol::message::{MAX_KEPT, MAX_KEPT_BYTES, is_name};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use zeroize::Zeroizing;

/// By name; at most [`MAX_KEPT`] of at most [`MAX_KEPT_BYTES`] each.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<String, Zeroizing<Vec<u8>>>);

impl Kept {
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
        if !self.0.contains_key(&name) && self.0.len() >= MAX_KEPT {
            return Err(format!("keep {name}: {MAX_KEPT} secrets are kept already"));
        }
        let content = read_memfd(memfd.as_fd(), MAX_KEPT_BYTES).map_err(|error| format!("keep {name}: {error}"))?;
        self.0.insert(name, content);
        Ok(())
    }

    /// The names, with one memfd each, as `adopt` has them.
    ///
    /// # Errors
    /// As memfd_create(2).
    pub(super) fn memfds(&self) -> io::Result<(Vec<String>, Vec<OwnedFd>)> {
        let mut names = Vec::with_capacity(self.0.len());
        let mut memfds = Vec::with_capacity(self.0.len());
        for (name, content) in &self.0 {
            memfds.push(sealed_memfd(name, content)?);
            names.push(name.clone());
        }
        Ok((names, memfds))
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
