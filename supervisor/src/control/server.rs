//! The supervisor's end of the control socket.

mod clients;

pub use clients::{Asked, Client, ClientId};

use crate::cli::Failure;
use crate::state::{ControlEntry, FileEntry, names};
use clients::{Connections, Context, MAX_CLIENTS, accept};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use protocol::exit;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, mpsc};

/// Its own user alone, and root.
const SOCKET_MODE: u32 = 0o600;

/// The bound socket. The lock beside it is held, and the socket file removed at the end.
#[derive(Debug)]
pub struct Server {
    listener: StdListener,
    file: SocketFile,
}

impl Server {
    /// Binds the control socket with mode 0600; its directory is made with mode 0700 if there is none.
    ///
    /// A stale socket of a supervisor that was killed is replaced, under a lock (`PATH.lock`), after a connect has
    /// failed: two that start at once can't take it from each other.
    ///
    /// # Errors
    /// [`exit::IN_USE`] naming the supervisor that holds the path; [`exit::USAGE`] when the path can't be used.
    pub fn bind(path: &Path) -> Result<Self, Failure> {
        let bad = |what: &str, error: &dyn std::fmt::Display| {
            Failure::new(exit::USAGE, format!("--control {}: {what}: {error}; name another path", path.display()))
        };
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(|error| bad("its directory can't be made", &error))?;
        }
        let lock = lock(path).map_err(|error| match error {
            Locked::Held => held(path),
            Locked::Failed(error) => bad("its lock file can't be made", &error),
        })?;
        let listener = match bind_private(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if StdStream::connect(path).is_ok() {
                    return Err(held(path));
                }
                let stale = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
                if !stale {
                    return Err(bad("it exists and is not a socket", &error));
                }
                fs::remove_file(path).and_then(|()| bind_private(path))
            }
            other => other,
        };
        let listener = listener.map_err(|error| bad("it can't be bound", &error))?;
        listener.set_nonblocking(true).map_err(|error| bad("it can't be used", &error))?;
        let meta = fs::symlink_metadata(path).map_err(|error| bad("it can't be read back", &error))?;
        let file = SocketFile { path: path.to_owned(), identity: (meta.dev(), meta.ino()), lock };
        Ok(Self { listener, file })
    }

    /// The socket and lock of the supervisor's earlier program, which has described them so.
    ///
    /// # Errors
    /// They are not what they should be.
    pub fn restored(entry: &ControlEntry, listener: OwnedFd, lock: OwnedFd) -> io::Result<Self> {
        let listener = StdListener::from(listener);
        if listener.local_addr()?.as_pathname() != Some(&entry.path) {
            return Err(io::Error::other("the control socket is at another path"));
        }
        listener.set_nonblocking(true)?;
        // The lock belongs to the open file, which is the same: this says only that it is there.
        let lock = Flock::lock(File::from(lock), FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
        let identity = (entry.file.device, entry.file.inode);
        Ok(Self { listener, file: SocketFile { path: entry.path.clone(), identity, lock } })
    }

    /// Serves until the runtime ends: these clients, and all that come.
    ///
    /// # Errors
    /// When the runtime can't watch the socket.
    pub fn serve(self, requests: mpsc::Sender<Asked>, clients: Vec<Client>) -> io::Result<Running> {
        let socket = self.listener.try_clone()?;
        let listener = UnixListener::from_std(self.listener)?;
        let context =
            Context { requests, answering: Arc::new(Semaphore::new(MAX_CLIENTS)), connections: Connections::default() };
        let running = Running {
            answering: Arc::clone(&context.answering),
            connections: context.connections.clone(),
            socket,
            file: self.file,
        };
        tokio::spawn(accept(listener, context, clients));
        Ok(running)
    }
}

/// What another program of this process needs to go on with the server.
#[derive(Debug)]
pub struct Saved<'a> {
    /// What is what.
    pub entry: ControlEntry,
    /// The socket and its lock, by name.
    pub sockets: [(String, BorrowedFd<'a>); 2],
    /// Duplicates of the connections, by name.
    pub clients: Vec<(String, OwnedFd)>,
}

/// The server in its tasks. The socket file goes when this is dropped.
#[derive(Debug)]
pub struct Running {
    answering: Arc<Semaphore>,
    connections: Connections,
    socket: StdListener,
    file: SocketFile,
}

impl Running {
    /// Everything that another program of this process needs to go on.
    #[must_use]
    pub fn save(&self) -> Saved<'_> {
        let clients: Vec<(String, OwnedFd)> = self.connections.duplicates();
        let SocketFile { path, identity: (device, inode), lock } = &self.file;
        let entry = ControlEntry {
            path: path.clone(),
            file: FileEntry { device: *device, inode: *inode, mode: SOCKET_MODE },
            clients: clients.iter().map(|(name, _)| name.clone()).collect(),
        };
        let sockets = [(names::CONTROL.to_owned(), self.socket.as_fd()), (names::LOCK.to_owned(), lock.as_fd())];
        Saved { entry, sockets, clients }
    }

    /// How many have asked and not taken their answer yet.
    #[must_use]
    pub fn busy(&self) -> usize {
        MAX_CLIENTS.saturating_sub(self.answering.available_permits())
    }

    /// Waits until nobody who asked is without an answer.
    pub async fn answered(&self) {
        let all = u32::try_from(MAX_CLIENTS).unwrap_or(u32::MAX);
        // Fails only when closed, which nobody does.
        let _ = self.answering.acquire_many(all).await;
    }
}

/// The socket's name in the file system.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    lock: Flock<File>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Only if it is still ours: somebody may have put another there by hand.
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity);
        if ours {
            // A file that stays is replaced by the next supervisor.
            let _ = fs::remove_file(&self.path);
        }
    }
}

enum Locked {
    Held,
    Failed(io::Error),
}

fn lock(path: &Path) -> Result<Flock<File>, Locked> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(name);
    let file = file.map_err(Locked::Failed)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, errno)| if errno == Errno::EWOULDBLOCK { Locked::Held } else { Locked::Failed(errno.into()) })
}

/// The credentials of a listening socket are those of its listen(2) (unix(7)), so connecting tells who holds the path.
fn held(path: &Path) -> Failure {
    let holder = StdStream::connect(path).ok().and_then(|stream| getsockopt(&stream, PeerCredentials).ok());
    let who = match holder {
        Some(holder) => {
            let name = fs::read_to_string(format!("/proc/{}/comm", holder.pid())).unwrap_or_default();
            let name = name.trim();
            let named = if name.is_empty() { String::new() } else { format!(" ({name})") };
            format!("process {}{named}", holder.pid())
        }
        None => "another supervisor".to_owned(),
    };
    let path = path.display();
    Failure::new(exit::IN_USE, format!("--control {path} is held by {who}: stop it, or name another path"))
}

/// The mode is right from the first moment: there is no time in which others could connect.
fn bind_private(path: &Path) -> io::Result<StdListener> {
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = StdListener::bind(path);
    umask(before);
    bound
}
