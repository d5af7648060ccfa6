//! Unix stream sockets and their paths.

use super::error::GrantError;
use super::holder::Holder;
use crate::state::FileEntry;
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::{Mode, fchmod};
use protocol::message::Kind;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Connections that wait for `accept`, at most; net.core.somaxconn may limit it further.
const BACKLOG: i32 = 1_024;

/// A listening unix socket, and the file that we made for it.
#[derive(Debug)]
pub(super) struct UnixSocket {
    socket: Socket,
    path: PathBuf,
    /// So that we never remove a file that someone else has put there; `None`: someone else made it.
    file: Option<FileEntry>,
}

impl UnixSocket {
    /// Binds at `path`. A socket file at which nobody listens any more is replaced.
    pub(super) fn bind(name: &str, path: &Path, mode: u32) -> Result<Self, GrantError> {
        let cause = Cause { name, path };
        reclaim(&cause)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(|error| cause.system("open", error))?;
        socket.set_nonblocking(true).map_err(|error| cause.system("open", error))?;
        // The file gets the mode of the socket's inode less the umask (unix_bind in net/unix/af_unix.c): so it never has
        // more permissions than are wanted, not even for a moment.
        fchmod(&socket, Mode::from_bits_truncate(mode))
            .map_err(|errno| cause.system("set the mode of", errno.into()))?;
        let address = SockAddr::unix(path).map_err(|error| cause.system("bind", error))?;
        socket.bind(&address).map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => cause.in_use(Holder::Unknown),
            Some(_) | None => cause.system("bind", error),
        })?;
        let finish = || {
            // Nobody can connect before it listens; here come the bits that the umask took.
            fs::set_permissions(path, Permissions::from_mode(mode))?;
            let metadata = fs::symlink_metadata(path)?;
            socket.listen(BACKLOG)?;
            Ok(FileEntry { device: metadata.dev(), inode: metadata.ino(), mode })
        };
        match finish() {
            Ok(file) => Ok(Self { socket, path: path.to_path_buf(), file: Some(file) }),
            Err(error) => {
                let _ = fs::remove_file(path);
                Err(cause.system("listen on", error))
            }
        }
    }

    /// A socket that listens already; with the file that an earlier process of ours made for it.
    pub(super) const fn restored(socket: Socket, path: PathBuf, file: Option<FileEntry>) -> Self {
        Self { socket, path, file }
    }

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) const fn file(&self) -> Option<FileEntry> {
        self.file
    }

    /// Changes the permissions of the file, if they are others and it is for us to say.
    pub(super) fn set_mode(&mut self, mode: u32) -> io::Result<()> {
        let ours = self.is_ours();
        match &mut self.file {
            Some(file) if file.mode != mode => {
                if !ours {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "its file was removed or replaced"));
                }
                fs::set_permissions(&self.path, Permissions::from_mode(mode))?;
                file.mode = mode;
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    /// Closes it and removes its file, unless someone has put another there.
    pub(super) fn close(self) {
        if self.is_ours() {
            // A directory that we may no longer write to: the next one to bind there finds nobody listening.
            let _ = fs::remove_file(&self.path);
        }
    }

    fn is_ours(&self) -> bool {
        let there = fs::symlink_metadata(&self.path).map(|metadata| (metadata.dev(), metadata.ino()));
        self.file.zip(there.ok()).is_some_and(|(file, there)| (file.device, file.inode) == there)
    }
}

/// Makes room at the path, if what is there is a socket that nobody listens on.
fn reclaim(cause: &Cause<'_>) -> Result<(), GrantError> {
    match fs::symlink_metadata(cause.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cause.system("look at", error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(GrantError::NotASocket { name: cause.name.to_owned(), path: cause.path.to_path_buf() });
        }
        Ok(_) => {}
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(|error| cause.system("open", error))?;
    probe.set_nonblocking(true).map_err(|error| cause.system("open", error))?;
    let address = SockAddr::unix(cause.path).map_err(|error| cause.system("bind", error))?;
    match probe.connect(&address) {
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => {
            fs::remove_file(cause.path).map_err(|error| cause.system("remove the stale", error))
        }
        // Whoever listens there called listen(2) with these credentials (SO_PEERCRED, unix(7)).
        Ok(()) => Err(cause.in_use(listener_of(&probe))),
        // A full backlog (EAGAIN), a socket of another type (EPROTOTYPE), or no permission: someone has it, or may.
        Err(_) => Err(cause.in_use(Holder::Unknown)),
    }
}

fn listener_of(connected: &Socket) -> Holder {
    match getsockopt(connected, sockopt::PeerCredentials) {
        Ok(peer) => match u32::try_from(peer.pid()) {
            Ok(pid) if pid > 0 => Holder::process(pid),
            Ok(_) | Err(_) => Holder::User { uid: peer.uid() },
        },
        Err(_) => Holder::Unknown,
    }
}

/// What an error is about.
struct Cause<'a> {
    name: &'a str,
    path: &'a Path,
}

impl Cause<'_> {
    fn in_use(&self, holder: Holder) -> GrantError {
        let address = self.path.display().to_string();
        GrantError::InUse { name: self.name.to_owned(), kind: Kind::Unix, address, holder }
    }

    fn system(&self, action: &'static str, source: io::Error) -> GrantError {
        let address = self.path.display().to_string();
        GrantError::System { name: self.name.to_owned(), kind: Kind::Unix, address, action, source }
    }
}
