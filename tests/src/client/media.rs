//! A live track with numbered frames, and the accounts of those who watch it.

use crate::wait;
use anyhow::Context as _;
use bytes::Bytes;
use moq_net::{broadcast, group, origin, track};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The only track of a broadcast.
const TRACK: &str = "frames";
/// How many frames make a group: one second at 60 a second would be too coarse to see a group lost.
pub const GROUP: u64 = 30;
/// The size of a frame in bytes, as of a small video frame.
const FRAME: usize = 1_200;
/// How old a group may become before a subscriber gives up on it: longer than any gap that a test tolerates.
const MAX_AGE: Duration = Duration::from_secs(30);

/// An origin whose driver runs until it is dropped.
#[must_use]
pub fn origin() -> origin::Producer {
    moq_tokio::origin::spawn()
}

/// A live broadcast. Dropping it ends it.
#[derive(Debug)]
pub struct Publisher {
    sent: Arc<AtomicU64>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Publisher {
    /// Publishes `path` in `origin`, `rate` frames a second.
    ///
    /// # Errors
    /// The path is taken or not allowed.
    pub fn start(origin: &origin::Producer, path: &str, rate: u32) -> anyhow::Result<Self> {
        let mut paced = Paced::start(origin, path)?;
        let sent = Arc::new(AtomicU64::new(0));
        let count = sent.clone();
        let task = tokio::spawn(async move {
            let mut clock = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
            loop {
                clock.tick().await;
                paced.send_to(paced.sent + 1)?;
                count.store(paced.sent, Ordering::Relaxed);
            }
        });
        Ok(Self { sent, task })
    }

    /// How many frames have been written.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A broadcast of which each frame is written when the test says so. Dropping it ends it.
pub struct Paced {
    _announced: broadcast::Producer,
    track: track::Producer,
    group: Option<group::Producer>,
    sent: u64,
}

impl Paced {
    /// Publishes `path` in `origin`.
    ///
    /// # Errors
    /// The path is taken or not allowed.
    pub fn start(origin: &origin::Producer, path: &str) -> anyhow::Result<Self> {
        let broadcast = origin.create_broadcast(path).context("a broadcast")?;
        let track = broadcast.create_track(TRACK, track::Info::default().with_max_age(MAX_AGE)).context("a track")?;
        broadcast.announce(origin::Route::default()).context("announcing it")?;
        Ok(Self { _announced: broadcast, track, group: None, sent: 0 })
    }

    /// Writes frames until that many have been sent in all. The frame that fills a group ends it.
    ///
    /// As an encoder has it, a group begins with its first frame. One that is there before it has any is handed out twice by
    /// `moq-net` when its subscriber changes routes at that moment.
    ///
    /// # Errors
    /// The broadcast has ended.
    pub fn send_to(&mut self, sent: u64) -> anyhow::Result<()> {
        while self.sent < sent {
            let mut group = match self.group.take() {
                Some(group) => group,
                None => self.track.append_group()?,
            };
            group.write_frame(moq_net::Timestamp::now(), frame(self.sent))?;
            self.sent += 1;
            if self.sent.is_multiple_of(GROUP) {
                group.finish()?;
            } else {
                self.group = Some(group);
            }
        }
        Ok(())
    }
}

/// A frame that says its number.
fn frame(number: u64) -> Bytes {
    let mut frame = vec![0; FRAME];
    frame[..8].copy_from_slice(&number.to_be_bytes());
    Bytes::from(frame)
}

/// What a subscriber has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Different frames.
    pub received: u64,
    /// Frames between the first and the last that never came.
    pub missing: u64,
    /// Frames that came more than once, each time counted.
    pub duplicates: u64,
    /// The longest time without a frame that had not come yet, from the first one until now.
    pub longest_gap: Duration,
    /// The lowest number of a frame.
    pub first: Option<u64>,
    /// The highest.
    pub last: Option<u64>,
    /// How often the subscription ended and had to be made again.
    pub interruptions: u64,
}

#[derive(Debug, Default)]
struct Account {
    frames: BTreeMap<u64, u32>,
    latest_arrival: Option<Instant>,
    longest_gap: Duration,
    gaps: Vec<Duration>,
    interruptions: u64,
    /// What came before this one is of no account.
    from: Option<u64>,
}

impl Account {
    fn arrived(&mut self, number: u64, now: Instant) {
        if self.from.is_some_and(|from| number < from) {
            return;
        }
        let times = self.frames.entry(number).or_default();
        *times += 1;
        if *times > 1 {
            // Nothing that anybody would be shown.
            return;
        }
        if let Some(before) = self.latest_arrival {
            let gap = now.duration_since(before);
            self.longest_gap = self.longest_gap.max(gap);
            self.gaps.push(gap);
        }
        self.latest_arrival = Some(now);
    }

    fn report(&self, now: Instant) -> Report {
        let received = self.frames.len() as u64;
        let first = self.from.or_else(|| self.frames.keys().next().copied());
        let last = self.frames.keys().next_back().copied();
        let span = first.zip(last).map_or(0, |(first, last)| last - first + 1);
        let open_gap = self.latest_arrival.map_or(Duration::ZERO, |before| now.saturating_duration_since(before));
        Report {
            received,
            missing: span - received,
            duplicates: self.frames.values().map(|times| u64::from(times - 1)).sum(),
            longest_gap: self.longest_gap.max(open_gap),
            first,
            last,
            interruptions: self.interruptions,
        }
    }
}

/// Watches a broadcast and keeps account. Dropping it ends it.
#[derive(Debug)]
pub struct Subscriber {
    account: Arc<Mutex<Account>>,
    task: JoinHandle<()>,
}

impl Subscriber {
    /// Watches `path` in `origin`, again whenever it ends.
    #[must_use]
    pub fn start(origin: &origin::Producer, path: &str) -> Self {
        let account = Arc::new(Mutex::new(Account::default()));
        let sink = account.clone();
        let origin = origin.consume();
        let path = path.to_owned();
        let task = tokio::spawn(async move {
            let mut announcements = origin.announced();
            loop {
                let Ok(mut track) = subscribe(&origin, &path).await else {
                    // Not there (yet): the next announcement may change that.
                    match announcements.next().await {
                        Some(_update) => continue,
                        None => return,
                    }
                };
                while let Ok(Some(group)) = track.recv_group().await {
                    tokio::spawn(read(group, sink.clone()));
                }
                sink.lock().unwrap_or_else(PoisonError::into_inner).interruptions += 1;
            }
        });
        Self { account, task }
    }

    /// What has come so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).report(Instant::now())
    }

    /// The time from each frame that had not come yet to the next such, in the order in which they came.
    #[must_use]
    pub fn gaps(&self) -> Vec<Duration> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).gaps.clone()
    }

    /// Forgets the gaps before now, and which frames have come, so that a report is of frame `from` and what follows it. With
    /// what the publisher has sent by now, that is all that it sends from now on, and no older group that a relay still
    /// has for those who come new.
    pub fn begin_anew(&self, from: u64) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        *account = Account { latest_arrival: Some(Instant::now()), from: Some(from), ..Account::default() };
    }

    /// Waits until frame `number` or a later one has come and none before the last is missing. Each group travels on a
    /// stream of its own, so a frame of the next one may overtake the end of this one.
    ///
    /// # Errors
    /// That was not so until `deadline`.
    pub async fn wait_for_all(&self, number: u64, deadline: Duration) -> anyhow::Result<Report> {
        let what = format!("all frames to {number} or a later one");
        let whole = wait::eventually(deadline, &what, async || {
            let report = self.report();
            Ok((report.missing == 0 && report.last.is_some_and(|last| last >= number)).then_some(report))
        });
        whole.await.with_context(|| format!("the subscriber's account: {:?}", self.report()))
    }

    /// Waits until frame `number` or a later one has come.
    ///
    /// # Errors
    /// It has not come until `deadline`.
    pub async fn wait_for(&self, number: u64, deadline: Duration) -> anyhow::Result<()> {
        wait::until(deadline, &format!("frame {number} or a later one"), || {
            Ok(self.report().last.is_some_and(|last| last >= number))
        })
        .await
        .with_context(|| format!("the subscriber's account: {:?}", self.report()))
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn subscribe(origin: &origin::Consumer, path: &str) -> anyhow::Result<track::Subscriber> {
    let broadcast = origin.request_broadcast(path).await?;
    let wish = track::Subscription::default().with_max_age(MAX_AGE);
    Ok(broadcast.track(TRACK)?.subscribe(wish).await?)
}

async fn read(mut group: group::Consumer, account: Arc<Mutex<Account>>) {
    while let Ok(Some(frame)) = group.read_frame().await {
        let Some(number) = frame.payload.first_chunk() else { continue };
        let number = u64::from_be_bytes(*number);
        account.lock().unwrap_or_else(PoisonError::into_inner).arrived(number, Instant::now());
    }
}
