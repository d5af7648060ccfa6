//! A stand-in for the service manager: it keeps descriptors (FDSTORE in sd_notify(3)) and hands them to the next supervisor.
//! As systemd it keeps several of one name, and no file twice.

use anyhow::Context as _;
use nix::cmsg_space;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tests::wait::{self, PATIENCE};
use tokio::process::{Child, Command};

/// More than any test needs.
const ROOM: usize = 1_000;

/// What it has been told and given.
#[derive(Debug, Default)]
struct Known {
    store: Vec<(String, OwnedFd)>,
    /// As many fit.
    room: usize,
    /// It does not read.
    busy: bool,
    said: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Manager {
    path: PathBuf,
    known: Arc<Mutex<Known>>,
}

impl Manager {
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let known = Arc::new(Mutex::new(Known { room: ROOM, ..Known::default() }));
        let sink = Arc::downgrade(&known);
        std::thread::spawn(move || {
            while let Some(known) = sink.upgrade() {
                if lock(&known).busy {
                    std::thread::sleep(Duration::from_millis(10));
                } else if let Ok((text, fds)) = receive(&socket) {
                    take(&mut lock(&known), &text, fds);
                }
            }
        });
        Ok(Self { path, known })
    }

    /// Starts a supervisor, with everything that is in the store.
    pub(crate) fn start(&self, command: &mut Command) -> anyhow::Result<Child> {
        let mut known = lock(&self.known);
        known.said.clear();
        let inheritable = |fd: &OwnedFd, flag| fcntl(fd, FcntlArg::F_SETFD(flag)).context("F_SETFD");
        let last = known.store.iter().map(|(_, fd)| fd.as_raw_fd()).max().unwrap_or(2);
        let names: BTreeMap<RawFd, &String> = known.store.iter().map(|(name, fd)| (fd.as_raw_fd(), name)).collect();
        let nothing = "-".to_owned();
        let names: Vec<&str> = (3..=last).map(|fd| names.get(&fd).copied().unwrap_or(&nothing).as_str()).collect();
        command.env("NOTIFY_SOCKET", &self.path);
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        for (_, fd) in &known.store {
            inheritable(fd, FdFlag::empty())?;
        }
        let child = command.spawn();
        for (_, fd) in &known.store {
            inheritable(fd, FdFlag::FD_CLOEXEC)?;
        }
        child.context("starting the supervisor")
    }

    /// The names of what it keeps.
    pub(crate) fn names(&self) -> Vec<String> {
        lock(&self.known).store.iter().map(|(name, _)| name.clone()).collect()
    }

    /// A duplicate of what it keeps under this name.
    pub(crate) fn kept(&self, name: &str) -> anyhow::Result<OwnedFd> {
        let known = lock(&self.known);
        let found = known.store.iter().find(|(known, _)| known == name);
        Ok(found.with_context(|| format!("no {name} in {:?}", known.store))?.1.try_clone()?)
    }

    /// From now on no more than this fits.
    pub(crate) fn holds(&self, room: usize) {
        lock(&self.known).room = room;
    }

    /// From now on it reads nothing, or again everything.
    pub(crate) fn is_busy(&self, busy: bool) {
        lock(&self.known).busy = busy;
    }

    /// Loses everything.
    pub(crate) fn forget(&self) {
        lock(&self.known).store.clear();
    }

    /// Loses the descriptor with this name.
    pub(crate) fn forget_one(&self, name: &str) -> anyhow::Result<()> {
        let store = &mut lock(&self.known).store;
        let index = store.iter().position(|(known, _)| known == name).with_context(|| format!("no {name}"))?;
        store.remove(index);
        Ok(())
    }

    /// Waits until the running supervisor has said this.
    pub(crate) async fn wait_for(&self, assignment: &str) -> anyhow::Result<()> {
        wait::until(2 * PATIENCE, assignment, || Ok(self.has_heard(assignment))).await
    }

    /// What the running or last supervisor has said, in order.
    pub(crate) fn said(&self) -> Vec<String> {
        lock(&self.known).said.clone()
    }

    pub(crate) fn has_heard(&self, assignment: &str) -> bool {
        lock(&self.known).said.iter().any(|text| text.lines().any(|line| line.starts_with(assignment)))
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(known: &mut Known, text: &str, fds: Vec<OwnedFd>) {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let name = value("FDNAME").unwrap_or("stored").to_owned();
    if value("FDSTORE") == Some("1") {
        for fd in fds {
            if known.store.len() < known.room && !known.store.iter().any(|(_, kept)| is_same(kept, &fd)) {
                known.store.push((name.clone(), fd));
            }
        }
    } else if value("FDSTOREREMOVE") == Some("1") {
        known.store.retain(|(kept, _)| *kept != name);
    }
    // A barrier's descriptor is closed here, after all that came before.
    known.said.push(text.to_owned());
}

fn receive(socket: &UnixDatagram) -> nix::Result<(String, Vec<OwnedFd>)> {
    let mut bytes = [0; 4_096];
    let mut control = cmsg_space!([RawFd; 4]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(rights) = part {
            fds.extend(rights.into_iter().map(owned));
        }
    }
    let length = message.bytes;
    Ok((String::from_utf8_lossy(&bytes[..length]).into_owned(), fds))
}

/// Whether two descriptors are of one open file (kcmp(2)), which is what systemd goes by.
#[expect(unsafe_code, reason = "nix has no kcmp")]
fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    /// KCMP_FILE of linux/kcmp.h.
    const FILE: i32 = 0;
    let ourselves = std::process::id();
    // SAFETY: takes five integers, and looks.
    unsafe { libc::syscall(libc::SYS_kcmp, ourselves, ourselves, FILE, one.as_raw_fd(), other.as_raw_fd()) == 0 }
}

#[expect(unsafe_code, reason = "nix gives received descriptors as numbers")]
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
