//! Sessions with the echo server: what goes out on a stream comes back.

use crate::client::{SERVER_NAME, local_for};
use crate::tls::{self, Seen};
use crate::wait::{self, PATIENCE};
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One connection, from a UDP port of its own. Dropping it closes it.
#[derive(Debug)]
pub struct Session {
    endpoint: quinn::Endpoint,
    connection: quinn::Connection,
    seen: Seen,
}

impl Session {
    /// Connects to the echo server at `server`.
    ///
    /// # Errors
    /// The handshake did not succeed within [`PATIENCE`].
    pub async fn connect(server: SocketAddr) -> anyhow::Result<Self> {
        let seen = Seen::default();
        Self::connect_with(tls::client(&[], &seen)?, seen, server).await
    }

    /// The same, without keep-alive: see [`tls::silent_client`].
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub async fn connect_silently(server: SocketAddr) -> anyhow::Result<Self> {
        let seen = Seen::default();
        Self::connect_with(tls::silent_client(&[], &seen)?, seen, server).await
    }

    async fn connect_with(config: quinn::ClientConfig, seen: Seen, server: SocketAddr) -> anyhow::Result<Self> {
        let endpoint = quinn::Endpoint::client(local_for(server)).context("a client socket")?;
        let connecting = endpoint.connect_with(config, server, SERVER_NAME)?;
        let connection = wait::within(PATIENCE, "an echo session", connecting.into_future()).await??;
        Ok(Self { endpoint, connection, seen })
    }

    /// Sends `payload` on a new stream and waits for it to come back. Returns how long that took.
    ///
    /// # Errors
    /// The connection ended, or something else came back.
    pub async fn echo(&self, payload: &[u8]) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let (mut send, mut recv) = self.connection.open_bi().await?;
        send.write_all(payload).await?;
        send.finish()?;
        let back = recv.read_to_end(payload.len()).await?;
        ensure!(back == payload, "{} bytes went out and {} others came back", payload.len(), back.len());
        Ok(start.elapsed())
    }

    /// Goes on from another UDP port.
    ///
    /// # Errors
    /// It has no other socket.
    pub fn rebind(&self) -> anyhow::Result<()> {
        let local = local_for(self.connection.remote_address());
        let socket = std::net::UdpSocket::bind(local).context("another client socket")?;
        self.endpoint.rebind(socket).context("rebinding")
    }

    /// The fingerprint of the server's certificate, in hex.
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        self.seen.fingerprint()
    }

    /// Why the connection has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<quinn::ConnectionError> {
        self.connection.close_reason()
    }

    /// Datagrams sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.connection.stats().udp_tx.datagrams
    }

    /// Datagrams sent and received.
    #[must_use]
    pub fn datagrams(&self) -> u64 {
        let stats = self.connection.stats();
        stats.udp_tx.datagrams + stats.udp_rx.datagrams
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.close(0_u8.into(), b"");
    }
}

/// How a steady session behaves.
#[derive(Clone, Copy, Debug)]
pub struct Habit {
    /// From one echo to the next; zero: at once.
    pub pause: Duration,
    /// Bytes of each echo.
    pub size: usize,
    /// Moves to another UDP port before each echo.
    pub rebind: bool,
}

/// What has come of a steady session.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Echoes that came back.
    pub echoes: u64,
    /// Changes of the UDP port.
    pub rebinds: u64,
    /// The longest that one took.
    pub slowest: Duration,
    /// Datagrams sent and received.
    pub datagrams: u64,
    /// Why it ended before it was stopped.
    pub failure: Option<String>,
}

/// A session that keeps echoing until it is stopped.
#[derive(Debug)]
pub struct Steady {
    report: Arc<Mutex<Report>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Steady {
    /// Begins.
    #[must_use]
    pub fn start(session: Session, habit: Habit) -> Self {
        let report = Arc::new(Mutex::new(Report::default()));
        let (stop, mut stopped) = watch::channel(false);
        let sink = report.clone();
        let task = tokio::spawn(async move {
            let payload = vec![0x5a; habit.size];
            while !*stopped.borrow() {
                if let Err(error) = step(&session, &payload, habit, &sink).await {
                    sink.lock().unwrap_or_else(PoisonError::into_inner).failure = Some(format!("{error:#}"));
                    return;
                }
                let _stop_or_next = tokio::time::timeout(habit.pause, stopped.changed()).await;
            }
        });
        Self { report, stop, task }
    }

    /// What has come of it so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it and reports.
    ///
    /// # Errors
    /// The session ended before, by itself.
    pub async fn stop(self) -> anyhow::Result<Report> {
        let _ended_already = self.stop.send(true);
        self.task.await.context("a steady session")?;
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ensure!(report.failure.is_none(), "a steady session failed: {report:?}");
        Ok(report)
    }
}

async fn step(session: &Session, payload: &[u8], habit: Habit, report: &Mutex<Report>) -> anyhow::Result<()> {
    if habit.rebind {
        session.rebind()?;
        report.lock().unwrap_or_else(PoisonError::into_inner).rebinds += 1;
    }
    let took = session.echo(payload).await?;
    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
    report.echoes += 1;
    report.datagrams = session.datagrams();
    report.slowest = report.slowest.max(took);
    Ok(())
}
