//! Clients in a storm: sessions that know who serves them, and fresh handshakes.

use super::record::{Failure, Loss, Moment, Record, Server};
use crate::client::{SERVER_NAME, local_for};
use crate::supervisor::Status;
use crate::tls::{self, Seen};
use anyhow::{Context as _, ensure};
use rand::Rng as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// From one echo of a session to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a session lasts: long enough for several blows, short enough that relays drain.
const LASTS: std::ops::Range<u64> = 1_000..8_000;

/// Handshakes that are under way: more are a service that does not serve, and memory.
const MOST_OPEN: usize = 400;

/// The record, and the clock that its moments are of.
#[derive(Clone, Debug)]
pub(super) struct Book {
    begin: Instant,
    record: Arc<Mutex<Record>>,
}

impl Book {
    pub(super) fn new() -> Self {
        Self { begin: Instant::now(), record: Arc::default() }
    }

    pub(super) fn now(&self) -> Moment {
        self.begin.elapsed()
    }

    pub(super) fn note(&self, what: impl FnOnce(&mut Record)) {
        what(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn failed(&self, begun: Moment, established: Option<Moment>, why: String) {
        self.note(|record| record.failed.push(Failure { begun, established, why }));
    }

    /// Notes what a status says of the relays.
    pub(super) fn look(&self, status: &Status) {
        let now = self.now();
        self.note(|record| {
            for generation in &status.generations {
                record.foreign.insert(generation.generation, generation.foreign);
                if let Some(pid) = generation.pid {
                    record.seen(pid, generation.state == "draining", now);
                }
            }
        });
    }

    pub(super) fn record(&self) -> Record {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Those that run.
#[derive(Debug)]
pub(super) struct Clients {
    stop: watch::Sender<bool>,
    all: JoinSet<anyhow::Result<()>>,
}

impl Clients {
    /// `sessions` at a time, and `rate` further handshakes a second, with these servers in turn.
    pub(super) fn start(book: &Book, servers: &[SocketAddr], sessions: usize, rate: u32) -> anyhow::Result<Self> {
        let config = tls::client(&[], &Seen::default())?;
        let (stop, stopped) = watch::channel(false);
        let mut all = JoinSet::new();
        for server in servers.iter().cycle().take(sessions) {
            all.spawn(one_after_the_other(book.clone(), *server, config.clone(), stopped.clone()));
        }
        all.spawn(handshakes(book.clone(), servers.to_vec(), rate, config, stopped));
        Ok(Self { stop, all })
    }

    /// No more of them; waits for those that are under way.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        while let Some(ended) = self.all.join_next().await {
            ended.context("a client")??;
        }
        Ok(())
    }
}

async fn one_after_the_other(
    book: Book,
    server: SocketAddr,
    config: quinn::ClientConfig,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    while !*stopped.borrow() {
        let endpoint = quinn::Endpoint::client(local_for(server)).context("a client socket")?;
        let begun = book.now();
        match endpoint.connect_with(config.clone(), server, SERVER_NAME)?.await {
            Ok(connection) => session(&book, begun, &connection, stopped.clone()).await,
            Err(error) => book.failed(begun, None, format!("a session's: {error}")),
        }
        endpoint.close(0_u8.into(), b"");
        endpoint.wait_idle().await;
    }
    Ok(())
}

/// Echoes until it has lasted long enough; notes its loss.
async fn session(book: &Book, begun: Moment, connection: &quinn::Connection, mut stopped: watch::Receiver<bool>) {
    let established = book.now();
    let server = match signature(connection).await {
        Ok(server) => server,
        // The handshake was all that the relay did before it died: as good as one that has failed.
        Err(error) => return book.failed(begun, Some(established), format!("unsigned: {error:#}")),
    };
    let end = Instant::now() + Duration::from_millis(rand::rng().random_range(LASTS));
    while Instant::now() < end && !*stopped.borrow() {
        if let Err(error) = echo(connection).await {
            let loss = Loss { server, when: book.now(), why: format!("{error:#}") };
            return book.note(|record| record.lost.push(loss));
        }
        let _stop_or_next = tokio::time::timeout(PAUSE, stopped.changed()).await;
    }
    book.note(|record| record.sessions += 1);
}

async fn signature(connection: &quinn::Connection) -> anyhow::Result<Server> {
    let text = connection.accept_uni().await?.read_to_end(100).await?;
    let text = String::from_utf8(text)?;
    let (pid, mortal) = text.split_once(' ').with_context(|| format!("{text:?} is no signature"))?;
    Ok(Server { pid: pid.parse()?, mortal: mortal == "mortal" })
}

async fn echo(connection: &quinn::Connection) -> anyhow::Result<()> {
    let payload = [0x5a; 100];
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&payload).await?;
    send.finish()?;
    let back = recv.read_to_end(payload.len()).await?;
    ensure!(back == payload, "something else came back");
    Ok(())
}

async fn handshakes(
    book: Book,
    servers: Vec<SocketAddr>,
    rate: u32,
    config: quinn::ClientConfig,
    mut stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut open = JoinSet::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    let mut turn = servers.iter().copied().cycle();
    loop {
        tokio::select! {
            _stop = stopped.changed() => break,
            _tick = clock.tick() => {
                while open.try_join_next().is_some() {}
                if open.len() >= MOST_OPEN {
                    let begun = book.now();
                    book.failed(begun, None, format!("{MOST_OPEN} others wait"));
                    continue;
                }
                let (book, config) = (book.clone(), config.clone());
                let server = turn.next().context("a server")?;
                open.spawn(async move {
                    let begun = book.now();
                    let outcome = crate::client::handshake::once(server, &config).await;
                    match outcome {
                        Ok(_took) => book.note(|record| record.completed += 1),
                        Err(error) => book.failed(begun, None, format!("{error:#}")),
                    }
                });
            }
        }
    }
    while open.join_next().await.is_some() {}
    Ok(())
}
