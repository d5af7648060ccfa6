//! Fresh QUIC handshakes at a steady rate, each from its own UDP port.

use crate::client::{SERVER_NAME, local_for};
use crate::tls::{self, Seen};
use anyhow::Context as _;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The probe timeout of a connection that has not measured its path yet: RFC 9002 §6.2.2 has the initial RTT be 333 ms
/// and the timeout twice that for the first flight, as its variation starts at half of it (§5.3): 333 + 4 × 166.5 ms.
pub const INITIAL_PTO: Duration = Duration::from_millis(999);

/// What came of the handshakes.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Those that were completed, by how long each took; in the order of their ends.
    pub completed: Vec<Duration>,
    /// The others, in the order of their ends.
    pub failed: Vec<Failure>,
}

/// A handshake that was not completed. Times count from the start of the load.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When it began.
    pub begun: Duration,
    /// When it was given up.
    pub ended: Duration,
    /// Why.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { begun, ended, why } = self;
        write!(f, "begun after {begun:?}, ended after {ended:?}: {why}")
    }
}

impl Report {
    /// How many took at least one probe timeout, so that something had to be sent again.
    #[must_use]
    pub fn delayed(&self) -> usize {
        self.completed.iter().filter(|took| **took >= INITIAL_PTO).count()
    }

    /// How many there were.
    #[must_use]
    pub fn total(&self) -> usize {
        self.completed.len() + self.failed.len()
    }
}

/// One handshake with `server` from a new port, and an orderly close. Returns how long the handshake took.
///
/// # Errors
/// No socket, or the handshake did not succeed.
pub async fn once(server: SocketAddr, config: &quinn::ClientConfig) -> anyhow::Result<Duration> {
    let endpoint = quinn::Endpoint::client(local_for(server)).context("a client socket")?;
    let start = Instant::now();
    let connection = endpoint.connect_with(config.clone(), server, SERVER_NAME)?.await?;
    let took = start.elapsed();
    connection.close(0_u8.into(), b"");
    endpoint.wait_idle().await;
    Ok(took)
}

/// A running load. [`Load::stop`] ends it.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    task: JoinHandle<Report>,
    so_far: Arc<Mutex<Report>>,
    begin: Instant,
}

impl Load {
    /// Begins `rate` handshakes a second with the servers in turn (two addresses of one listener, say), offering
    /// `alpns`.
    ///
    /// # Errors
    /// As [`tls::client`].
    pub fn start(servers: &[SocketAddr], alpns: &[&str], rate: u32) -> anyhow::Result<Self> {
        let config = tls::client(alpns, &Seen::default())?;
        let (stop, mut stopped) = watch::channel(false);
        let so_far = Arc::new(Mutex::new(Report::default()));
        let sink = so_far.clone();
        let servers = servers.to_vec();
        let begin = Instant::now();
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            let mut clock = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
            let mut turn = servers.iter().cycle();
            loop {
                tokio::select! {
                    _stop = stopped.changed() => break,
                    _tick = clock.tick() => {
                        let Some(server) = turn.next().copied() else { break };
                        let config = config.clone();
                        let sink = sink.clone();
                        let begun = begin.elapsed();
                        open.spawn(async move {
                            let outcome = once(server, &config).await;
                            let mut report = sink.lock().unwrap_or_else(PoisonError::into_inner);
                            match outcome {
                                Ok(took) => report.completed.push(took),
                                Err(error) => {
                                    let (ended, why) = (begin.elapsed(), format!("{error:#}"));
                                    report.failed.push(Failure { begun, ended, why });
                                }
                            }
                        });
                        while open.try_join_next().is_some() {}
                    }
                }
            }
            while open.join_next().await.is_some() {}
            sink.lock().unwrap_or_else(PoisonError::into_inner).clone()
        });
        Ok(Self { stop, task, so_far, begin })
    }

    /// The time since its start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// The handshakes that have ended so far.
    #[must_use]
    pub fn so_far(&self) -> Report {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins no more, waits for those that are under way, and reports.
    ///
    /// # Errors
    /// The load itself failed.
    pub async fn stop(self) -> anyhow::Result<Report> {
        let _already_over = self.stop.send(true);
        self.task.await.context("the load")
    }
}
