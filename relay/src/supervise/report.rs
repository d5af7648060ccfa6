//! Counters for the supervisor: once a second, and soon after a change.

use crate::drain::Registry;
use crate::stats::{Accepts, Stats as Counting};
use moq_tokio::accept::Health;
use protocol::child::Sender;
use protocol::message::Stats;
use protocol::quinn::MemberCounters;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// Who says or shows them does so under this lock, so that none says older ones after newer ones.
    pub(crate) frozen: Arc<Mutex<Option<Stats>>>,
}

impl Gauges {
    /// Says the counters to the supervisor, as they are now.
    pub(crate) fn say(&self, sender: &Sender) {
        let _one_at_a_time = self.frozen();
        sender.stats(self.read());
    }

    /// Says the counters when the role has been lost. Whoever is still being answered is shown these: those who ask the
    /// successor next must not find less.
    pub(crate) fn freeze(&self, sender: &Sender) {
        let mut frozen = self.frozen();
        let last = self.read();
        sender.stats(last.clone());
        *frozen = Some(last);
    }

    /// The role has come back.
    pub(crate) fn thaw(&self) {
        *self.frozen() = None;
    }

    /// The counters to show to operators. The supervisor has them before anybody sees them: if this process is killed now, its
    /// successor begins from here.
    pub(crate) fn show(&self, sender: Option<&Sender>) -> Stats {
        let frozen = self.frozen();
        if let Some(frozen) = &*frozen {
            return frozen.clone();
        }
        let own = self.read();
        if let Some(sender) = sender {
            sender.stats(own.clone());
        }
        own
    }

    fn frozen(&self) -> MutexGuard<'_, Option<Stats>> {
        // Each change is one step, so a panic leaves nothing half done.
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Stats {
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
        gauges.say(&sender);
        let changed = timeout_at(sent + PERIOD, gauges.registry.changed()).await.is_ok();
        if changed {
            sleep_until(sent + GAP).await;
        }
    }
}
