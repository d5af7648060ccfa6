//! Who has the address that we want.

use super::request::inet_overlap;
use crate::sys::sock_diag::{self, Transport};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// Who holds an address, as far as we may know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// A process. Any other that shares the socket with it is as good.
    Process {
        /// Its process id.
        pid: u32,
        /// Its program: the path where /proc shows it, else its short name.
        program: String,
    },
    /// A process of this user, which is another than ours, so that /proc does not show its sockets.
    User {
        /// The user's number.
        uid: u32,
    },
    /// The system does not say.
    Unknown,
}

impl Holder {
    /// Who has a socket in the way of one at `address`.
    pub(super) fn of(transport: Transport, address: SocketAddr) -> Self {
        let Ok(sockets) = sock_diag::on_port(transport, address.port()) else { return Self::Unknown };
        let in_the_way = sockets.iter().filter(|socket| inet_overlap(socket.local, address));
        let mut unseen = Self::Unknown;
        for socket in in_the_way {
            match Self::of_socket(socket.inode, socket.uid) {
                seen @ Self::Process { .. } => return seen,
                user @ (Self::User { .. } | Self::Unknown) => unseen = user,
            }
        }
        unseen
    }

    /// Who has the socket with this number, which belongs to this user.
    pub(super) fn of_socket(inode: u64, uid: u32) -> Self {
        process_with(inode).map_or(Self::User { uid }, Self::process)
    }

    /// The process with this id.
    pub(super) fn process(pid: u32) -> Self {
        let proc = Path::new("/proc").join(pid.to_string());
        let exe = fs::read_link(proc.join("exe")).map(|exe| exe.display().to_string());
        let comm = || fs::read_to_string(proc.join("comm")).map(|comm| comm.trim_end().to_owned());
        let program = exe.or_else(|_| comm()).unwrap_or_else(|_| "unknown program".to_owned());
        Self::Process { pid, program }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, program } => write!(f, "pid {pid} ({program})"),
            Self::User { uid } => write!(f, "a process of uid {uid}"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

/// A process that has the socket with this number open. Looks at every process that we may look at: some milliseconds.
fn process_with(inode: u64) -> Option<u32> {
    let link = OsString::from(format!("socket:[{inode}]"));
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let mut fds = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        fds.any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == link)).then_some(pid)
    })
}
