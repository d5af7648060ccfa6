//! The stream listeners (TCP, unix socket), on the main runtime.
//!
//! A listener's socket is shared by all generations, so a relay accepts from it only while it is active; otherwise
//! clients wait in its queue for the one that is.

mod accept;
mod wire;

pub(crate) use accept::accepted;
pub(crate) use wire::Wires;

use crate::config::UnixAllow;
use crate::node::{Node, Tally};
use crate::session::{Stream, serve_stream};
use moq_tokio::accept::Health;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener};

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket, with who may connect.
    Unix(UnixListener, UnixAllow),
}

impl Listener {
    /// Takes over a listening TCP socket. Call it on the runtime that is to serve it.
    pub(crate) fn tcp(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(TcpListener::from_std(listener)?))
    }

    /// Takes over a listening unix socket. Call it on the runtime that is to serve it.
    pub(crate) fn unix(listener: std::os::unix::net::UnixListener, allow: UnixAllow) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(UnixListener::from_std(listener)?, allow))
    }

    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                if let Err(error) = tune(&stream) {
                    tracing::debug!(%error, "a TCP session goes without what could not be set");
                }
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(listener, allow) => {
                let (stream, _) = listener.accept().await?;
                Ok(Stream::Unix(stream, allow.clone()))
            }
        }
    }
}

/// Silence after which the kernel probes a TCP peer, and the interval of its probes: a peer that vanished is noticed
/// even when neither side sends.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

fn tune(stream: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)
}

/// Accepts and serves while the relay's role says so; for ever.
pub(crate) async fn serve(listener: Listener, health: Health, max_streams: u64, node: Arc<Node>, tally: Arc<Tally>) {
    let mut role = node.role.subscribe();
    loop {
        if !role.borrow_and_update().accepts_streams() {
            if role.changed().await.is_err() {
                return;
            }
            continue;
        }
        let accepted = tokio::select! {
            biased;
            changed = role.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            accepted = accepted(&health, || listener.accept()) => accepted,
        };
        let Some(setup) = node.registry.setup() else { return };
        tokio::spawn(serve_stream(accepted, max_streams, setup, node.clone(), tally.clone()));
    }
}
