//! The path between a client and a server, on which a test can hold datagrams back and send old ones again.

use crate::client::local_for;
use anyhow::Context as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A forwarder for one client. The server sees one address, whatever is held back.
#[derive(Debug)]
pub struct HeldPath {
    /// Where the client sends to.
    pub entrance: SocketAddr,
    server: SocketAddr,
    upstream: Arc<UdpSocket>,
    limit: watch::Sender<usize>,
    seen: Arc<Mutex<Seen>>,
    tasks: [JoinHandle<()>; 2],
}

/// The datagrams of each direction, in order.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// From the client, held back or not.
    pub to_server: Vec<Vec<u8>>,
    /// From the server.
    pub to_client: Vec<Vec<u8>>,
}

impl HeldPath {
    /// A path to `server` on which only the first `limit` datagrams of the client pass, until [`HeldPath::release`].
    ///
    /// # Errors
    /// No sockets.
    pub async fn to(server: SocketAddr, limit: usize) -> anyhow::Result<Self> {
        let downstream = Arc::new(UdpSocket::bind("127.0.0.1:0").await.context("the client's side")?);
        let upstream = Arc::new(UdpSocket::bind(local_for(server)).await.context("the server's side")?);
        let entrance = downstream.local_addr()?;
        let (limit, passes) = watch::channel(limit);
        let (client, known) = watch::channel(None);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let there = tokio::spawn(forward(downstream.clone(), upstream.clone(), server, passes, client, seen.clone()));
        let back = tokio::spawn(back(upstream.clone(), downstream, known, seen.clone()));
        Ok(Self { entrance, server, upstream, limit, seen, tasks: [there, back] })
    }

    /// Lets everything pass, what was held back first.
    pub fn release(&self) {
        self.limit.send_replace(usize::MAX);
    }

    /// What has come so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a datagram to the server, from the address that it knows.
    ///
    /// # Errors
    /// It can't be sent.
    pub async fn inject(&self, datagram: &[u8]) -> anyhow::Result<()> {
        self.upstream.send_to(datagram, self.server).await.context("sending again")?;
        Ok(())
    }
}

impl Drop for HeldPath {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The longest datagram.
const LONGEST: usize = 1 << 16;

async fn forward(
    downstream: Arc<UdpSocket>,
    upstream: Arc<UdpSocket>,
    server: SocketAddr,
    mut limit: watch::Receiver<usize>,
    client: watch::Sender<Option<SocketAddr>>,
    seen: Arc<Mutex<Seen>>,
) {
    let mut bytes = vec![0; LONGEST];
    let mut sent = 0;
    let mut held = Vec::new();
    loop {
        tokio::select! {
            received = downstream.recv_from(&mut bytes) => {
                let Ok((length, from)) = received else { return };
                client.send_replace(Some(from));
                let datagram = bytes[..length].to_vec();
                seen.lock().unwrap_or_else(PoisonError::into_inner).to_server.push(datagram.clone());
                held.push(datagram);
            }
            changed = limit.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        let pass = limit.borrow().saturating_sub(sent).min(held.len());
        for datagram in held.drain(..pass) {
            // A lost datagram is nothing new to QUIC.
            let _lost = upstream.send_to(&datagram, server).await;
            sent += 1;
        }
    }
}

async fn back(
    upstream: Arc<UdpSocket>,
    downstream: Arc<UdpSocket>,
    client: watch::Receiver<Option<SocketAddr>>,
    seen: Arc<Mutex<Seen>>,
) {
    let mut bytes = vec![0; LONGEST];
    while let Ok((length, _server)) = upstream.recv_from(&mut bytes).await {
        seen.lock().unwrap_or_else(PoisonError::into_inner).to_client.push(bytes[..length].to_vec());
        let known = *client.borrow();
        if let Some(client) = known {
            let _lost = downstream.send_to(&bytes[..length], client).await;
        }
    }
}
