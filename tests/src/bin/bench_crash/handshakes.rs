//! Fresh handshakes, each with the moments of its beginning and end.

use anyhow::Context as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::client::handshake;
use tests::tls::{self, Seen};
use tests::wait;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// One handshake that has ended.
#[derive(Clone, Copy, Debug)]
struct One {
    begun: Instant,
    ended: Instant,
    completed: bool,
}

/// A steady load.
pub(crate) struct Handshakes {
    ended: Arc<Mutex<Vec<One>>>,
    crashes: Arc<Mutex<Vec<Instant>>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What has come of all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) all: u64,
    /// Failed, of those in flight at a crash.
    pub(crate) failed: u64,
    /// Failed, of all others.
    pub(crate) failed_elsewhere: u64,
    /// Begun before a crash and not ended at it.
    pub(crate) in_flight: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.all += other.all;
        self.failed += other.failed;
        self.failed_elsewhere += other.failed_elsewhere;
        self.in_flight += other.in_flight;
    }
}

impl Handshakes {
    /// Begins `rate` a second.
    pub(crate) fn start(server: SocketAddr, rate: u32) -> anyhow::Result<Self> {
        let config = tls::client(&["h3"], &Seen::default())?;
        let ended = Arc::new(Mutex::new(Vec::new()));
        let (stop, mut stopped) = watch::channel(false);
        let sink = ended.clone();
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            let mut clock = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
            loop {
                tokio::select! {
                    _stop = stopped.changed() => break,
                    _tick = clock.tick() => {
                        let (config, sink) = (config.clone(), sink.clone());
                        open.spawn(async move {
                            let begun = Instant::now();
                            // The handshake alone: `once` also waits for the end of its close.
                            let took = handshake::once(server, &config).await.ok();
                            let ended = took.map_or_else(Instant::now, |took| begun + took);
                            let one = One { begun, ended, completed: took.is_some() };
                            sink.lock().unwrap_or_else(PoisonError::into_inner).push(one);
                        });
                        while open.try_join_next().is_some() {}
                    }
                }
            }
            while open.join_next().await.is_some() {}
        });
        Ok(Self { ended, crashes: Arc::default(), stop, task })
    }

    /// From the crash to the end of the first handshake that was begun after it.
    pub(crate) async fn first_after(&self, crash: Instant, deadline: Duration) -> anyhow::Result<Duration> {
        self.crashes.lock().unwrap_or_else(PoisonError::into_inner).push(crash);
        let first = wait::eventually(deadline, "a handshake after the crash", async || {
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            let after = ended.iter().filter(|one| one.begun >= crash && one.completed);
            Ok(after.map(|one| one.ended).min())
        });
        Ok(first.await?.saturating_duration_since(crash))
    }

    /// Begins no more, and waits for those that are under way.
    pub(crate) async fn stop(self) -> anyhow::Result<Outcome> {
        let _already_over = self.stop.send(true);
        self.task.await.context("the handshakes")?;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let crashes = self.crashes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = Outcome { all: ended.len() as u64, ..Outcome::default() };
        for one in ended.iter() {
            let in_flight = crashes.iter().any(|crash| one.begun <= *crash && *crash < one.ended);
            outcome.in_flight += u64::from(in_flight);
            outcome.failed += u64::from(in_flight && !one.completed);
            outcome.failed_elsewhere += u64::from(!in_flight && !one.completed);
        }
        Ok(outcome)
    }
}
