//! Publishers and viewers with the default settings of `moq-tokio`, half of them over WebTransport.

use crate::Options;
use moq_net::origin;
use moq_tokio::{Connection, Restart};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::native::{self, Scheme};
use tests::report::quantile;
use tests::wait::PATIENCE;

/// All clients of one run.
pub(crate) struct Fleet {
    publishers: Vec<(Publisher, Connection)>,
    viewers: Vec<Viewer>,
}

struct Viewer {
    of: usize,
    subscriber: Subscriber,
    connection: Connection,
    _sink: origin::Producer,
}

/// What they noticed, together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noticed {
    /// Frames that viewers got.
    pub(crate) received: u64,
    /// Frames that never came.
    pub(crate) missing: u64,
    /// Frames that came again.
    pub(crate) duplicates: u64,
    /// Subscriptions that ended and had to be made anew.
    pub(crate) interruptions: u64,
    /// Clients that have given up.
    pub(crate) gone: u64,
    /// The time from frame to frame of which one in a thousand is longer.
    pub(crate) gap_p999: Duration,
    /// The longest.
    pub(crate) gap_max: Duration,
}

impl Fleet {
    /// Connects everybody, and waits until every viewer gets frames. What is noticed counts from then on.
    pub(crate) async fn join(server: SocketAddr, options: &Options) -> anyhow::Result<Self> {
        let scheme = |index: usize| if index.is_multiple_of(2) { Scheme::Quic } else { Scheme::Https };
        let mut publishers = Vec::new();
        for index in 0..options.publishers {
            let source = media::origin();
            let publisher = Publisher::start(&source, &path(index), options.rate)?;
            let url = native::url(scheme(index), server)?;
            publishers.push((publisher, native::publish(&source, url, Restart::Redial).await?));
        }
        let mut viewers = Vec::new();
        for index in 0..options.subscribers {
            let of = index % options.publishers;
            let sink = media::origin();
            // So that each broadcast has viewers of both kinds.
            let url = native::url(scheme(index / options.publishers), server)?;
            let connection = native::subscribe(&sink, url, Restart::Redial).await?;
            viewers.push(Viewer { of, subscriber: Subscriber::start(&sink, &path(of)), connection, _sink: sink });
        }
        for viewer in &viewers {
            viewer.subscriber.wait_for(publishers[viewer.of].0.sent(), PATIENCE).await?;
            viewer.subscriber.begin_anew(publishers[viewer.of].0.sent());
        }
        Ok(Self { publishers, viewers })
    }

    /// Waits until what has been sent by now has come, but not for those who have given up, and ends everything.
    pub(crate) async fn noticed(self) -> Noticed {
        let sent: Vec<u64> = self.publishers.iter().map(|(publisher, _)| publisher.sent()).collect();
        let mut noticed = Noticed::default();
        let mut gaps = Vec::new();
        let until = Instant::now() + PATIENCE / 2;
        for viewer in &self.viewers {
            let last = sent[viewer.of].saturating_sub(1);
            // One that does not get there is seen by what is missing.
            drop(viewer.subscriber.wait_for(last, until.saturating_duration_since(Instant::now())).await);
            let report = viewer.subscriber.report();
            noticed.received += report.received;
            noticed.missing += report.missing + last.saturating_sub(report.last.unwrap_or(0));
            noticed.duplicates += report.duplicates;
            noticed.interruptions += report.interruptions;
            noticed.gap_max = noticed.gap_max.max(report.longest_gap);
            gaps.extend(viewer.subscriber.gaps());
        }
        let connections =
            self.publishers.iter().map(|(_, connection)| connection).chain(self.viewers.iter().map(|v| &v.connection));
        noticed.gone = connections.filter(|connection| !connection.connected()).count() as u64;
        noticed.gap_p999 = quantile(&mut gaps, 0.999);
        noticed
    }
}

fn path(index: usize) -> String {
    format!("live/{index}")
}
