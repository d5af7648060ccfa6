//! Clients that ignore GOAWAY: they notice nothing until they are closed at the deadline, and then dial again at once.

use crate::ours::OVERLAP;
use crate::{Options, say};
use anyhow::Context as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::webtransport::{Media, Session};
use tests::report::{Report, count, milliseconds};
use tests::supervisor::Setup;
use tests::wait::PATIENCE;
use tests::{program, relay};
use tokio::task::JoinSet;

/// The longest gap of such clients on today's relay, measured when it was restarted: what ours must not exceed.
const TODAY: Duration = Duration::from_millis(290);

/// Runs it, and notes the figures.
pub(crate) async fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    say("clients that ignore GOAWAY")?;
    let flags = ["--probation", "500ms", "--drain-timeout", OVERLAP, "--max-generations", "4"];
    let supervisor = Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).serve().await?;
    let crowd = Crowd::join(supervisor.address().await?, options).await?;
    supervisor.upgrade().await?;
    let clients = options.publishers + options.subscribers;
    supervisor.wait_for("GOAWAYs", |status| status.sessions(1) == clients as u64).await?;
    // The deadline is 5 s after the commit: nothing may have happened a second before it.
    tokio::time::sleep(Duration::from_secs(4)).await;
    report.bound("ignoring GOAWAY: closed before the deadline", count(crowd.redials()), "", 0.0);
    let before = crowd.noticed();
    report.bound("ignoring GOAWAY: frames missing before the deadline", count(before.missing), "", 0.0);
    report.bound("ignoring GOAWAY: frames twice before the deadline", count(before.duplicates), "", 0.0);
    report.bound(
        "ignoring GOAWAY: subscriptions interrupted before the deadline",
        count(before.interruptions),
        "",
        0.0,
    );
    report.note("ignoring GOAWAY: longest gap before the deadline", milliseconds(before.longest_gap), "ms");
    let gaps = crowd.gaps();
    supervisor.wait_for("all on the new one", |status| status.sessions(2) == clients as u64).await?;
    crowd.catch_up().await?;
    let after = crowd.noticed();
    report.note("ignoring GOAWAY: redials at the deadline", count(crowd.redials()), "");
    // What was on its way when both ends were cut, and what was published until both were back: whoever joins anew is given
    // the groups that the relay has.
    report.note("ignoring GOAWAY: frames missing after the deadline", count(after.missing), "");
    report.note("ignoring GOAWAY: frames twice after the deadline", count(after.duplicates), "");
    let longest = milliseconds(crowd.longest_gap_since(&gaps));
    report.bound("ignoring GOAWAY: longest gap at the deadline", longest, "ms", milliseconds(TODAY));
    Ok(())
}

/// Publishers and viewers of that kind.
pub(crate) struct Crowd {
    publishers: Vec<Publisher>,
    viewers: Vec<(usize, Subscriber)>,
    redials: Arc<AtomicU64>,
    _keepers: JoinSet<()>,
}

/// What they noticed, together.
#[derive(Debug, Default)]
pub(crate) struct Noticed {
    pub(crate) missing: u64,
    pub(crate) duplicates: u64,
    pub(crate) interruptions: u64,
    pub(crate) longest_gap: Duration,
}

impl Crowd {
    /// Connects everybody, and waits until every viewer gets frames.
    pub(crate) async fn join(server: SocketAddr, options: &Options) -> anyhow::Result<Self> {
        let redials = Arc::new(AtomicU64::new(0));
        let mut keepers = JoinSet::new();
        let mut publishers = Vec::new();
        for index in 0..options.publishers {
            let source = media::origin();
            publishers.push(Publisher::start(&source, &format!("live/{index}"), options.rate)?);
            let media = Media::publish(&source);
            keepers.spawn(keep(Session::connect(server, &media).await?, server, media, redials.clone()));
        }
        let mut viewers = Vec::new();
        for index in 0..options.subscribers {
            let of = index % options.publishers;
            let sink = media::origin();
            let media = Media::subscribe(&sink);
            keepers.spawn(keep(Session::connect(server, &media).await?, server, media, redials.clone()));
            viewers.push((of, Subscriber::start(&sink, &format!("live/{of}"))));
        }
        let crowd = Self { publishers, viewers, redials, _keepers: keepers };
        crowd.catch_up().await?;
        crowd.begin_anew();
        Ok(crowd)
    }

    /// Waits until each viewer has got what has been sent by now.
    pub(crate) async fn catch_up(&self) -> anyhow::Result<()> {
        let sent: Vec<u64> = self.publishers.iter().map(Publisher::sent).collect();
        for (of, subscriber) in &self.viewers {
            subscriber.wait_for(sent[*of], PATIENCE).await.context("a viewer that ignores GOAWAY")?;
        }
        Ok(())
    }

    pub(crate) fn begin_anew(&self) {
        self.viewers.iter().for_each(|(of, subscriber)| subscriber.begin_anew(self.publishers[*of].sent()));
    }

    /// How many gaps there were so far, by viewer.
    fn gaps(&self) -> Vec<usize> {
        self.viewers.iter().map(|(_, subscriber)| subscriber.gaps().len()).collect()
    }

    /// The longest after as many.
    fn longest_gap_since(&self, counts: &[usize]) -> Duration {
        let since = |((_, subscriber), &count): (&(usize, Subscriber), &usize)| {
            subscriber.gaps().into_iter().skip(count).max().unwrap_or_default()
        };
        self.viewers.iter().zip(counts).map(since).max().unwrap_or_default()
    }

    pub(crate) fn redials(&self) -> u64 {
        self.redials.load(Ordering::Relaxed)
    }

    pub(crate) fn noticed(&self) -> Noticed {
        let mut noticed = Noticed::default();
        for (_, subscriber) in &self.viewers {
            let report = subscriber.report();
            noticed.missing += report.missing;
            noticed.duplicates += report.duplicates;
            noticed.interruptions += report.interruptions;
            noticed.longest_gap = noticed.longest_gap.max(report.longest_gap);
        }
        noticed
    }
}

/// Dials again whenever its session has ended.
async fn keep(mut session: Session, server: SocketAddr, media: Media, redials: Arc<AtomicU64>) {
    loop {
        // The end is what matters, not why.
        drop(session.closed(Duration::MAX).await);
        session = loop {
            redials.fetch_add(1, Ordering::Relaxed);
            if let Ok(session) = Session::connect(server, &media).await {
                break session;
            }
        };
    }
}
