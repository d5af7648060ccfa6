//! Counters for the supervisor: once a second, and soon after a change.

use crate::drain::Registry;
use crate::stats::{Accepts, Stats as Counting};
use moq_tokio::accept::Health;
use protocol::child::Sender;
use protocol::message::Stats;
use protocol::quinn::MemberCounters;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The longest time between two reports.
const PERIOD: Duration = Duration::from_secs(1);
/// The shortest: a burst of changes is one report.
const GAP: Duration = Duration::from_millis(50);

/// Where the counters are.
#[derive(Clone)]
pub(crate) struct Gauges {
    pub(crate) stats: Arc<Counting>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) members: Vec<Arc<MemberCounters>>,
    /// Of the stream listeners.
    pub(crate) listeners: Vec<Health>,
}

impl Gauges {
    /// The counters as they are now.
    pub(crate) fn read(&self) -> Stats {
        let counts = self.registry.counts();
        let mut traffic = self.stats.traffic();
        let datagrams: u64 = self.members.iter().map(|member| member.received()).sum();
        traffic.insert("udp_datagrams_received".to_owned(), datagrams.into());
        Accepts::of(&self.listeners).write(&mut traffic);
        Stats {
            sessions: counts.sessions,
            setup: counts.setup,
            handshakes: counts.handshakes,
            told: counts.told,
            left: counts.left,
            forced: counts.forced,
            foreign: self.members.iter().map(|member| member.foreign()).sum(),
            traffic,
        }
    }
}

/// Reports for ever. An idle relay wakes for it once a period.
pub(crate) async fn report(sender: Sender, gauges: Gauges) {
    loop {
        let sent = Instant::now();
        sender.stats(gauges.read());
        let changed = timeout_at(sent + PERIOD, gauges.registry.changed()).await.is_ok();
        if changed {
            sleep_until(sent + GAP).await;
        }
    }
}
