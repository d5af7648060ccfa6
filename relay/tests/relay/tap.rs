//! What a relay writes to its TCP clients, read on the way.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A listener before that of a relay, which passes everything on and keeps what comes back.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    passing: Arc<Mutex<JoinSet<std::io::Result<Vec<u8>>>>>,
}

impl Tap {
    pub(crate) async fn before(relay: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let tap = Self { address: listener.local_addr()?, passing: Arc::default() };
        let passing = tap.passing.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                passing.lock().unwrap_or_else(PoisonError::into_inner).spawn(pass(client, relay));
            }
        });
        Ok(tap)
    }

    /// Waits for the end of all connections, and says how many had this in what came last.
    pub(crate) async fn ended_with(&self, text: &str) -> usize {
        let mut passing = std::mem::take(&mut *self.passing.lock().unwrap_or_else(PoisonError::into_inner));
        let mut count = 0;
        while let Some(passed) = passing.join_next().await {
            let bytes = passed.expect("it does not panic").unwrap_or_default();
            let last = &bytes[bytes.len().saturating_sub(100)..];
            count += usize::from(last.windows(text.len()).any(|part| part == text.as_bytes()));
        }
        count
    }
}

async fn pass(client: TcpStream, relay: SocketAddr) -> std::io::Result<Vec<u8>> {
    let (mut from_relay, mut to_relay) = TcpStream::connect(relay).await?.into_split();
    let (mut from_client, mut to_client) = client.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_relay).await });
    let mut all = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        let count = from_relay.read(&mut buffer).await?;
        if count == 0 {
            to_client.shutdown().await?;
            return Ok(all);
        }
        all.extend_from_slice(&buffer[..count]);
        to_client.write_all(&buffer[..count]).await?;
    }
}
