//! Against a manager that keeps descriptors as systemd does (`service_add_fd_store()` there), as many as fit: several of one
//! name, and no file twice.

use super::*;
use crate::sys::inherit::take;
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixDatagram;

struct Manager {
    socket: UnixDatagram,
    notify: Notify,
    store: Vec<(String, OwnedFd)>,
    room: usize,
}

impl Manager {
    fn new(folder: &std::path::Path, room: usize) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_nonblocking(true).expect("set");
        let notify = Notify::new(Some(OsStr::new(&path))).expect("usable");
        Self { socket, notify, store: Vec::new(), room }
    }

    /// What has come, after it was done.
    fn hears(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some((text, fds)) = self.receive() {
            let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            let name = value("FDNAME").unwrap_or_default().to_owned();
            if value("FDSTORE").is_some() {
                for fd in fds {
                    if self.store.len() < self.room && !self.has_file(&fd) {
                        self.store.push((name.clone(), fd));
                    }
                }
            } else if value("FDSTOREREMOVE").is_some() {
                self.store.retain(|(known, _)| *known != name);
            }
            heard.push(text);
        }
        heard
    }

    fn has(&self, name: &str) -> bool {
        self.store.iter().any(|(known, _)| known == name)
    }

    fn has_file(&self, fd: &OwnedFd) -> bool {
        self.store.iter().any(|(_, known)| file(known) == file(fd))
    }

    fn receive(&self) -> Option<(String, Vec<OwnedFd>)> {
        let (mut buffer, mut space) = ([0; 1_000], cmsg_space!([i32; 4]));
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut space), flags).ok()?;
        let mut fds = Vec::new();
        for part in message.cmsgs().expect("whole") {
            if let ControlMessageOwned::ScmRights(numbers) = part {
                fds.extend(numbers.into_iter().filter_map(take));
            }
        }
        let length = message.bytes;
        Some((String::from_utf8(buffer[..length].to_vec()).expect("text"), fds))
    }

    /// One round of a check.
    async fn answers(&mut self, store: &mut Store) {
        let check = store.check(&mut self.notify).expect("a manager");
        self.hears();
        let checked = check.answer().await;
        assert!(checked.is_some(), "no answer");
        store.checked(&mut self.notify, checked);
        self.hears();
    }
}

/// What tells one file in memory from another.
fn file(fd: &impl std::os::fd::AsFd) -> (u64, u64) {
    let stat = nix::sys::stat::fstat(fd).expect("open");
    (stat.st_dev, stat.st_ino)
}

/// Something to store.
fn files(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| protocol::channel::sealed_memfd("test", b"").expect("made")).collect()
}

/// These files, each by its name.
fn named<'a>(files: &'a [OwnedFd], names: &[&str]) -> Vec<(String, BorrowedFd<'a>)> {
    names.iter().zip(files).map(|(name, fd)| ((*name).to_owned(), fd.as_fd())).collect()
}

#[test]
fn what_is_new_is_stored_once_and_what_is_gone_removed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut manager = Manager::new(folder.path(), 9);
    let (files, mut store) = (files(4), Store::default());
    let stored = |name: &str| format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
    let removed = |name: &str| format!("FDSTOREREMOVE=1\nFDNAME={name}");
    store.add(&mut manager.notify, &named(&files, &["a", "b"]));
    store.add(&mut manager.notify, &named(&files, &["a", "b"]));
    assert_eq!(manager.hears(), [stored("a"), stored("b")]);
    store.add(&mut manager.notify, &named(&files[1..], &["b", "c"]));
    store.prune(&mut manager.notify, &named(&files[1..], &["b", "c"]));
    assert_eq!(manager.hears(), [stored("c"), removed("a")]);
}

/// Guards the next supervisor: of two files with one name it could use neither.
#[test]
fn what_was_there_before_us_is_removed_before_ours_is_stored_under_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut manager = Manager::new(folder.path(), 9);
    let (files, mut store) = (files(2), Store::default());
    manager.notify.store("state", files[0].as_fd());
    manager.hears();
    store.discard(&mut manager.notify, ["state"]);
    assert!(store.is_due());
    store.add(&mut manager.notify, &named(&files[1..], &["state"]));
    manager.hears();
    let [(name, kept)] = &manager.store[..] else { panic!("{:?}", manager.store) };
    assert_eq!((name.as_str(), file(kept)), ("state", file(&files[1])));
}

#[tokio::test]
async fn it_is_complete_when_a_check_has_found_everything() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut manager = Manager::new(folder.path(), 3);
    let (files, mut store) = (files(4), Store::default());
    assert!(store.is_complete() && !store.is_due());
    store.add(&mut manager.notify, &named(&files, &["a", "b"]));
    assert!(!store.is_complete() && store.is_due());
    manager.answers(&mut store).await;
    assert!(store.is_complete() && !store.is_due() && store.trouble().is_none());
    assert!(!manager.has(names::PROBE), "the probe is not left there");
    // What comes after a question is not in its answer.
    store.add(&mut manager.notify, &named(&files, &["a", "b", "c"]));
    let check = store.check(&mut manager.notify).expect("a manager");
    store.prune(&mut manager.notify, &named(&files[1..], &["b", "c"]));
    manager.hears();
    store.checked(&mut manager.notify, check.answer().await);
    assert!(!store.is_complete() && store.is_due());
}

/// Guards against a store that is thought to be complete for ever, or for ever not, because it was full once.
#[tokio::test]
async fn what_found_no_room_is_noticed_and_stored_once_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut manager = Manager::new(folder.path(), 3);
    let (files, mut store) = (files(4), Store::default());
    for names in [&["a", "b"][..], &["a", "b", "c", "d"]] {
        store.add(&mut manager.notify, &named(&files, names));
        manager.answers(&mut store).await;
    }
    assert!(!store.is_complete() && !manager.has("d"));
    assert!(
        store.trouble().is_some_and(|line| line.contains("4 descriptors") && line.contains("FileDescriptorStoreMax="))
    );
    let left = named(&files[2..], &["c", "d"]);
    store.prune(&mut manager.notify, &left);
    store.add(&mut manager.notify, &left);
    manager.answers(&mut store).await;
    assert!(store.is_complete() && store.trouble().is_none());
    assert!(manager.has("c") && manager.has("d"));
}

/// Guards a service whose unit has no FileDescriptorStoreMax= at all.
#[tokio::test]
async fn a_manager_without_a_store_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut manager = Manager::new(folder.path(), 0);
    let (files, mut store) = (files(4), Store::default());
    store.add(&mut manager.notify, &named(&files, &["a"]));
    manager.answers(&mut store).await;
    assert!(store.trouble().is_some() && !store.is_complete());
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_does_not_answer_is_not_waited_for_and_not_asked_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut manager = Manager::new(folder.path(), 9);
    let (files, mut store) = (files(4), Store::default());
    store.add(&mut manager.notify, &named(&files, &["a"]));
    let check = store.check(&mut manager.notify).expect("a manager");
    assert_eq!(check.answer().await, None);
    store.checked(&mut manager.notify, None);
    assert!(!store.is_complete() && !store.is_due());
}

/// Guards restarts: one answer that did not come, or a store that was too small until its limit was raised, must not count
/// for ever.
#[tokio::test]
async fn what_is_doubted_is_told_and_asked_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut manager = Manager::new(folder.path(), 2);
    let (files, mut store) = (files(4), Store::default());
    let all = named(&files, &["a", "b", "c"]);
    store.add(&mut manager.notify, &all);
    manager.answers(&mut store).await;
    assert!(store.is_full() && !manager.has("c"));
    manager.room = 9;
    store.doubt();
    store.add(&mut manager.notify, &all);
    assert!(store.is_due());
    manager.answers(&mut store).await;
    assert!(store.is_complete() && !store.is_full() && manager.has("c"));
    assert_eq!(manager.store.len(), 3, "nothing is there twice");

    store.add(&mut manager.notify, &named(&files[3..], &["d"]));
    let check = store.check(&mut manager.notify).expect("a manager");
    drop(check);
    store.checked(&mut manager.notify, None);
    assert!(!store.is_complete() && !store.is_due());
    store.doubt();
    store.add(&mut manager.notify, &named(&files, &["a", "b", "c", "d"]));
    manager.answers(&mut store).await;
    assert!(store.is_complete() && manager.has("d"));
}

/// The socket of a manager that hangs holds few messages: the rest waits here, in order.
#[test]
fn a_manager_that_reads_late_gets_everything_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut manager = Manager::new(folder.path(), 0);
    let files = files(1);
    for number in 0..2_000 {
        manager.notify.store(&number.to_string(), files[0].as_fd());
    }
    let mut heard = Vec::new();
    while heard.len() < 2_000 {
        let more = manager.hears();
        assert!(!more.is_empty(), "stuck after {}", heard.len());
        heard.extend(more);
        manager.notify.flush();
    }
    assert!(heard.iter().enumerate().all(|(number, text)| text.ends_with(&format!("FDNAME={number}"))));
}
