//! Publishers and subscribers on `moq-tokio` with its defaults, which redial by themselves.

use anyhow::Context as _;
use moq_net::origin;
use moq_tokio::{Connection, Restart, Status};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::native::{self, Scheme};
use tests::wait;
use tokio::task::JoinHandle;
use url::Url;

/// One subscriber in so many watches a broadcast; the others only hear what is announced.
const WATCHES: usize = 10;
/// Frames a second.
const RATE: u32 = 60;

/// All clients.
pub(crate) struct Clients {
    url: Url,
    publishers: Vec<(Publisher, origin::Producer, Client)>,
    subscribers: Vec<(Option<Viewer>, origin::Producer, Client)>,
}

/// One that watches this broadcast.
struct Viewer {
    of: usize,
    subscriber: Subscriber,
}

/// One connection, watched.
struct Client {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    connected: bool,
    /// When it learnt that its session is gone, since it was asked to begin anew.
    known: Option<Instant>,
    /// It gave up.
    over: bool,
}

/// What came of a crash.
pub(crate) struct Back {
    /// When each client knew that its session was gone.
    pub(crate) known: Vec<Instant>,
    /// So many were not back in time.
    pub(crate) lost: u64,
}

impl Client {
    fn watch(mut connection: Connection) -> Self {
        let seen = Arc::new(Mutex::new(Seen { connected: connection.connected(), ..Seen::default() }));
        let sink = seen.clone();
        let task = tokio::spawn(async move {
            loop {
                let status = connection.status().await;
                let now = Instant::now();
                let mut seen = sink.lock().unwrap_or_else(PoisonError::into_inner);
                match status {
                    Ok(Status::Disconnected) => {
                        seen.connected = false;
                        seen.known.get_or_insert(now);
                    }
                    Ok(_) => seen.connected = true,
                    Err(_gave_up) => {
                        (seen.connected, seen.over) = (false, true);
                        seen.known.get_or_insert(now);
                        return;
                    }
                }
            }
        });
        Self { seen, task }
    }

    fn seen(&self) -> Seen {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Clients {
    /// Connects everybody.
    pub(crate) async fn start(server: SocketAddr, publishers: usize, subscribers: usize) -> anyhow::Result<Self> {
        let url = native::url(Scheme::Quic, server)?;
        let mut all = Self { url, publishers: Vec::new(), subscribers: Vec::new() };
        for number in 0..publishers {
            let origin = media::origin();
            let publisher = Publisher::start(&origin, &path(number), RATE)?;
            let client = all.publish(&origin).await?;
            all.publishers.push((publisher, origin, client));
        }
        for number in 0..subscribers {
            let origin = media::origin();
            let client = all.subscribe(&origin).await?;
            let of = (number / WATCHES) % publishers.max(1);
            let watches = number % WATCHES == 0 && publishers > 0;
            let viewer = watches.then(|| Viewer { of, subscriber: Subscriber::start(&origin, &path(of)) });
            all.subscribers.push((viewer, origin, client));
        }
        Ok(all)
    }

    async fn publish(&self, origin: &origin::Producer) -> anyhow::Result<Client> {
        native::publish(origin, self.url.clone(), Restart::default()).await.map(Client::watch)
    }

    async fn subscribe(&self, origin: &origin::Producer) -> anyhow::Result<Client> {
        native::subscribe(origin, self.url.clone(), Restart::default()).await.map(Client::watch)
    }

    fn all(&self) -> impl Iterator<Item = &Client> {
        let publishers = self.publishers.iter().map(|(_, _, client)| client);
        publishers.chain(self.subscribers.iter().map(|(_, _, client)| client))
    }

    /// Waits until everybody is connected and every viewer has got further frames.
    pub(crate) async fn are_served(&self, deadline: Duration) -> anyhow::Result<()> {
        let last: Vec<_> = self.viewers().iter().map(|viewer| viewer.last).collect();
        wait::until(deadline, "all clients to be served", || {
            let connected = self.all().all(|client| client.seen().connected);
            let viewers = self.viewers();
            Ok(connected && viewers.iter().zip(&last).all(|(viewer, last)| viewer.last > *last))
        })
        .await
        .context("the clients before a crash")
    }

    /// What is seen from now on is of the next crash.
    pub(crate) fn begin_anew(&self) {
        for client in self.all() {
            client.seen.lock().unwrap_or_else(PoisonError::into_inner).known = None;
        }
        for viewer in self.subscribers.iter().filter_map(|(viewer, _, _)| viewer.as_ref()) {
            viewer.subscriber.begin_anew(self.publishers[viewer.of].0.sent());
        }
    }

    /// Waits until everybody knows of the crash and is connected again, or has given up, or the time is over; and until
    /// the viewers get frames, so that their gap is closed.
    pub(crate) async fn are_back(&self, deadline: Duration) -> Back {
        let back = |client: &Client| {
            let seen = client.seen();
            seen.known.is_some() && (seen.connected || seen.over)
        };
        let begun = Instant::now();
        let all = wait::until(deadline, "all clients", || Ok(self.all().all(back))).await;
        if all.is_ok() {
            let left = deadline.saturating_sub(begun.elapsed());
            // Whoever gets nothing has its gap in the figures.
            let _in_time = self.are_served(left).await;
        }
        let known = self.all().filter_map(|client| client.seen().known).collect();
        let lost = self.all().filter(|client| !client.seen().connected).count() as u64;
        Back { known, lost }
    }

    /// What each viewer has got since it began anew.
    pub(crate) fn viewers(&self) -> Vec<media::Report> {
        let viewers = self.subscribers.iter().filter_map(|(viewer, _, _)| viewer.as_ref());
        viewers.map(|viewer| viewer.subscriber.report()).collect()
    }
}

fn path(number: usize) -> String {
    format!("live/{number}")
}
