//! The network between one client and a server, which a test can cut.

use crate::client::local_for;
use anyhow::Context as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Passes datagrams on. To the server, the client is at one address, and has another one only when it gets another line.
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    far: SocketAddr,
    cut: watch::Sender<bool>,
    inject: mpsc::UnboundedSender<Vec<u8>>,
    last_id: Arc<Mutex<Option<[u8; 8]>>>,
    task: JoinHandle<()>,
}

impl Line {
    /// A line to `server`.
    ///
    /// # Errors
    /// It has no sockets.
    pub async fn to(server: SocketAddr) -> anyhow::Result<Self> {
        let front = UdpSocket::bind(SocketAddr::new(super::reachable(local_for(server)).ip(), 0)).await?;
        let back = UdpSocket::bind(local_for(server)).await?;
        back.connect(server).await.context("the line's far end")?;
        let (address, far) = (front.local_addr()?, back.local_addr()?);
        let (cut, is_cut) = watch::channel(false);
        let (inject, injected) = mpsc::unbounded_channel();
        let last_id = Arc::new(Mutex::new(None));
        let task = tokio::spawn(pass(front, back, is_cut, injected, last_id.clone()));
        Ok(Self { address, far, cut, inject, last_id, task })
    }

    /// Where its client finds the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the server sees its client.
    #[must_use]
    pub fn far(&self) -> SocketAddr {
        self.far
    }

    /// Loses everything from now on, or nothing any more.
    pub fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    /// Has the client receive this as if the server had sent it.
    pub fn inject(&self, packet: Vec<u8>) {
        // The line lives as long as `self`.
        let _sent = self.inject.send(packet);
    }

    /// The server's connection ID in the client's last packet of an established connection.
    #[must_use]
    pub fn last_id(&self) -> Option<[u8; 8]> {
        *self.last_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(
    front: UdpSocket,
    back: UdpSocket,
    is_cut: watch::Receiver<bool>,
    mut injected: mpsc::UnboundedReceiver<Vec<u8>>,
    last_id: Arc<Mutex<Option<[u8; 8]>>>,
) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut client = None;
    loop {
        // What can't be sent or received is lost, as on any line.
        tokio::select! {
            Ok((length, from)) = front.recv_from(&mut up) => {
                client = Some(from);
                let packet = &up[..length];
                if let Some((first, rest)) = packet.split_first()
                    && first & 0x80 == 0
                    && let Some(id) = rest.first_chunk()
                {
                    *last_id.lock().unwrap_or_else(PoisonError::into_inner) = Some(*id);
                }
                let lost = *is_cut.borrow();
                if !lost {
                    let _lost = back.send(packet).await;
                }
            }
            Some(packet) = injected.recv() => {
                if let Some(client) = client {
                    let _lost = front.send_to(&packet, client).await;
                }
            }
            Ok(length) = back.recv(&mut down) => {
                let lost = *is_cut.borrow();
                if let (Some(client), false) = (client, lost) {
                    let _lost = front.send_to(&down[..length], client).await;
                }
            }
        }
    }
}
