//! The connections of the control socket: each has a task of its own, bounded in number, request size and time.

use crate::control::{MAX_REQUEST, Reply, Request};
use crate::state::names;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Clients at the same time. One more displaces the one that has been silent longest.
pub(super) const MAX_CLIENTS: usize = 32;
/// For a whole request line to arrive, and for a reply to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request for the loop, with the way back.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub request: Request,
    /// Dropped unanswered: the client hears that the supervisor ended.
    pub reply: oneshot::Sender<Reply>,
    /// Whose connection it came over.
    pub client: ClientId,
}

/// Names a connection; never reused in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The one with this index among those that a server is given to serve from its start.
    #[must_use]
    pub fn nth(index: usize) -> Self {
        Self(u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1))
    }
}

/// A connection that came along from the supervisor's earlier program.
#[derive(Debug)]
pub struct Client {
    /// It.
    pub stream: StdStream,
    /// The answer to what it asked there, if it waits for one.
    pub answer: Option<oneshot::Receiver<Reply>>,
}

/// What every connection needs.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) requests: mpsc::Sender<Asked>,
    /// As many permits as clients; one is taken by each that waits for its answer.
    pub(super) answering: Arc<Semaphore>,
    pub(super) connections: Connections,
}

/// The descriptors of all connections, for who takes them to another program. They are of the same sockets.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<(u64, BTreeMap<u64, OwnedFd>)>>);

impl Connections {
    /// Until the result is dropped.
    fn add(&self, stream: &UnixStream) -> io::Result<Connection> {
        let fd = stream.as_fd().try_clone_to_owned()?;
        let mut all = self.all();
        all.0 += 1;
        let number = all.0;
        all.1.insert(number, fd);
        Ok(Connection { number, all: self.clone() })
    }

    pub(super) fn duplicates(&self) -> Vec<(String, OwnedFd)> {
        let duplicate = |(number, fd): (&u64, &OwnedFd)| Some((names::client(*number), fd.try_clone().ok()?));
        self.all().1.iter().filter_map(duplicate).collect()
    }

    fn all(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, OwnedFd>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them.
#[derive(Debug)]
struct Connection {
    number: u64,
    all: Connections,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.all().1.remove(&self.number);
    }
}

/// Serves these clients, and all that come.
pub(super) async fn accept(listener: UnixListener, context: Context, restored: Vec<Client>) {
    let mut clients: VecDeque<Served> = VecDeque::new();
    let served = |stream: UnixStream, answer: Option<oneshot::Receiver<Reply>>| {
        let busy = Arc::new(AtomicBool::new(answer.is_some()));
        let served = serve(stream, answer, context.clone(), Arc::clone(&busy));
        Served { task: tokio::spawn(served).abort_handle(), busy }
    };
    for Client { stream, answer } in restored {
        let watched = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
        match watched {
            Ok(stream) => clients.push_back(served(stream, answer)),
            Err(error) => tracing::warn!("a client can't be served any more: {error}"),
        }
    }
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
                refuse(&stream, &format!("{MAX_CLIENTS} clients wait for their answers already; try again later"));
                continue;
            };
            silent.task.abort();
        }
        clients.push_back(served(stream, None));
    }
}

/// The task of one connection.
struct Served {
    task: AbortHandle,
    /// It has asked and is not answered yet.
    busy: Arc<AtomicBool>,
}

fn refuse(stream: &UnixStream, why: &str) {
    let reply = serde_json::to_vec(&Reply::Error { message: why.to_owned() }).unwrap_or_default();
    // It fits into an empty socket; a client that has gone needs none.
    let _ = stream.try_write(&[&reply, &b"\n"[..]].concat());
}

async fn serve(
    mut stream: UnixStream,
    answer: Option<oneshot::Receiver<Reply>>,
    context: Context,
    busy: Arc<AtomicBool>,
) {
    let Context { requests, answering, connections } = context;
    if !permitted(&stream) {
        let message = "this socket is for its owner and root; run as the supervisor's user".to_owned();
        send(&mut stream, &Reply::Error { message }).await;
        return;
    }
    let Ok(connection) = connections.add(&stream) else {
        return refuse(&stream, "the supervisor has no descriptors left");
    };
    if let Some(answer) = answer {
        // Never waits: there are as many as there are clients.
        let Ok(_answering) = answering.acquire().await else { return };
        let reply = answer.await.unwrap_or_else(|_| ended());
        if !send(&mut stream, &reply).await {
            return;
        }
        busy.store(false, Relaxed);
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
            Ok(request) => ask(&requests, request, ClientId(connection.number)).await,
            Err(error) => Reply::Error { message: format!("not a request: {error}; see docs/control.md") },
        };
        if !send(&mut stream, &reply).await {
            return;
        }
        busy.store(false, Relaxed);
    }
}

/// A client that goes away meanwhile keeps its slot until the answer: an upgrade always ends.
async fn ask(requests: &mpsc::Sender<Asked>, request: Request, client: ClientId) -> Reply {
    let (reply, answered) = oneshot::channel();
    if requests.send(Asked { request, reply, client }).await.is_err() {
        return ended();
    }
    answered.await.unwrap_or_else(|_| ended())
}

fn ended() -> Reply {
    Reply::Error { message: "the supervisor ended".to_owned() }
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
