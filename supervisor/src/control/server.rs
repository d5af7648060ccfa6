//! The supervisor's end of the control socket.
//!
//! Each client has a task of its own, bounded in number, request size and time, that hands whole requests to the loop;
//! a silent client costs a slot for a few seconds and nothing else.

use super::{MAX_REQUEST, Reply, Request};
use crate::cli::Failure;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use protocol::exit;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Clients at the same time. One more displaces the one that has been silent longest.
const MAX_CLIENTS: usize = 32;
/// For a whole request line to arrive, and for a reply to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request for the loop, with the way back.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub request: Request,
    /// Dropped unanswered: the client hears that the supervisor ended.
    pub reply: oneshot::Sender<Reply>,
}

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
        let file = SocketFile { path: path.to_owned(), identity: (meta.dev(), meta.ino()), _lock: lock };
        Ok(Self { listener, file })
    }

    /// Serves until the runtime ends.
    ///
    /// # Errors
    /// When the runtime can't watch the socket.
    pub fn serve(self, requests: mpsc::Sender<Asked>) -> io::Result<Running> {
        let listener = UnixListener::from_std(self.listener)?;
        let answering = Arc::new(Semaphore::new(MAX_CLIENTS));
        tokio::spawn(accept(listener, requests, Arc::clone(&answering)));
        Ok(Running { answering, _file: self.file })
    }
}

/// The server in its tasks. The socket file goes when this is dropped.
#[derive(Debug)]
pub struct Running {
    answering: Arc<Semaphore>,
    _file: SocketFile,
}

impl Running {
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
    _lock: Flock<File>,
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

async fn accept(listener: UnixListener, requests: mpsc::Sender<Asked>, answering: Arc<Semaphore>) {
    let mut clients: VecDeque<Client> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: accepting at once again would spin.
                tracing::warn!("the control socket can't accept: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        clients.retain(|client| !client.task.is_finished());
        if clients.len() >= MAX_CLIENTS {
            // Whoever is silent longest makes room; those that wait for an answer are left alone.
            let silent = clients.iter().position(|client| !client.busy.load(Relaxed));
            let Some(silent) = silent.and_then(|index| clients.remove(index)) else {
                refuse(&stream);
                continue;
            };
            silent.task.abort();
        }
        let busy = Arc::new(AtomicBool::new(false));
        let served = serve(stream, requests.clone(), Arc::clone(&answering), Arc::clone(&busy));
        clients.push_back(Client { task: tokio::spawn(served).abort_handle(), busy });
    }
}

/// One connection.
struct Client {
    task: AbortHandle,
    /// It has asked and is not answered yet.
    busy: Arc<AtomicBool>,
}

fn refuse(stream: &UnixStream) {
    let message = format!("{MAX_CLIENTS} clients wait for their answers already; try again later");
    let reply = serde_json::to_vec(&Reply::Error { message }).unwrap_or_default();
    // It fits into an empty socket; a client that has gone needs none.
    let _ = stream.try_write(&[&reply, &b"\n"[..]].concat());
}

async fn serve(
    mut stream: UnixStream,
    requests: mpsc::Sender<Asked>,
    answering: Arc<Semaphore>,
    busy: Arc<AtomicBool>,
) {
    if !permitted(&stream) {
        let message = "this socket is for its owner and root; run as the supervisor's user".to_owned();
        send(&mut stream, &Reply::Error { message }).await;
        return;
    }
    let mut buffer = Vec::with_capacity(256);
    while let Ok(Some(line)) = timeout(PATIENCE, next_line(&mut stream, &mut buffer)).await {
        let Ok(line) = line else {
            let message = format!("a request has at most {MAX_REQUEST} bytes");
            send(&mut stream, &Reply::Error { message }).await;
            return;
        };
        busy.store(true, Relaxed);
        // Never waits: there are as many as there are clients.
        let Ok(_answering) = answering.acquire().await else { return };
        let reply = match serde_json::from_slice(&line) {
            Ok(request) => answer(&requests, request).await,
            Err(error) => Reply::Error { message: format!("not a request: {error}; see docs/control.md") },
        };
        if !send(&mut stream, &reply).await {
            return;
        }
        busy.store(false, Relaxed);
    }
}

/// A client that goes away meanwhile keeps its slot until the answer: an upgrade always ends.
async fn answer(requests: &mpsc::Sender<Asked>, request: Request) -> Reply {
    let (reply, answered) = oneshot::channel();
    let ended = || Reply::Error { message: "the supervisor ended".to_owned() };
    if requests.send(Asked { request, reply }).await.is_err() {
        return ended();
    }
    answered.await.unwrap_or_else(|_| ended())
}

fn permitted(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

/// A request longer than [`MAX_REQUEST`].
struct TooLong;

/// `None` at the end of the stream.
async fn next_line(stream: &mut UnixStream, buffer: &mut Vec<u8>) -> Option<Result<Vec<u8>, TooLong>> {
    loop {
        if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let rest = buffer.split_off(end + 1);
            return Some(Ok(std::mem::replace(buffer, rest)));
        }
        if buffer.len() > MAX_REQUEST {
            return Some(Err(TooLong));
        }
        match stream.read_buf(buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// False when the client does not take it.
async fn send(stream: &mut UnixStream, reply: &Reply) -> bool {
    let Ok(mut line) = serde_json::to_vec(reply) else { return false };
    line.push(b'\n');
    matches!(timeout(PATIENCE, stream.write_all(&line)).await, Ok(Ok(())))
}
