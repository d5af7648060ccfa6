//! What passes through the node, counted: for `/metrics`, for the supervisor, and as broadcasts of its own.
//!
//! The counting is `moq-net`'s: each session has a context in one registry. This relay adds the other generations, so that
//! one process answers for the whole node (`docs/design/overlap.md`).

mod accepts;
mod frames;
mod peers;
mod publish;
mod task;
mod totals;

pub(crate) use accepts::{Accepts, Failures};
pub(crate) use task::{Publishing, publish};
pub(crate) use totals::Totals;

use crate::config;
use moq_net::stats::{self, Registry, Tier};
use moq_net::{Pattern, Patterns};
use protocol::message::{Generation, GenerationStats, Stats as Counters};
use std::collections::BTreeSet;
use tokio::sync::watch;

/// Where each generation publishes what it counted by itself, for those that live beside it.
const PRIVATE: &str = ".generations";

/// The key of our counters within `traffic`.
const TRAFFIC: &str = "moq";

/// The counters of this process, and what is known of the others.
pub(crate) struct Stats {
    registry: Registry,
    others: watch::Sender<Others>,
}

/// What the supervisor said of the other generations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others {
    /// It has been said; without a supervisor there is nothing to say.
    pub(crate) known: bool,
    /// This process publishes the node's statistics.
    pub(crate) speaks: bool,
    /// No other one answers operators any more, and what any has shown them is here.
    pub(crate) settled: bool,
    /// The counters of those that live.
    pub(crate) live: Vec<GenerationStats>,
    /// Of those that have gone.
    pub(crate) gone: Counters,
}

impl Others {
    /// Those that live.
    fn generations(&self) -> impl Iterator<Item = Generation> {
        self.live.iter().map(|one| one.generation)
    }

    /// Whether those and no others live.
    fn are(&self, generations: &BTreeSet<Generation>) -> bool {
        self.live.len() == generations.len() && self.generations().all(|generation| generations.contains(&generation))
    }
}

impl Stats {
    /// Counts, if anybody is to be told. A relay without a supervisor is the node.
    pub(crate) fn new(settings: &config::Stats, metrics: bool, alone: bool) -> Self {
        let registry = if settings.enabled || metrics {
            let excluded = [Pattern::subtree(settings.prefix.as_str()), Pattern::subtree(PRIVATE)];
            let mut counting = stats::Config::new();
            counting.exclude = excluded.into_iter().flatten().collect::<Patterns>();
            Registry::new(counting)
        } else {
            Registry::disabled()
        };
        let others = Others { known: alone, speaks: alone, settled: alone, ..Others::default() };
        Self { registry, others: watch::Sender::new(others) }
    }

    /// The context of one session below that path.
    pub(crate) fn session(&self, root: &str) -> stats::Session {
        self.registry.tier(Tier::default()).session(root)
    }

    /// The supervisor says what the others counted. Once this process speaks for the node it does until it drains.
    pub(crate) fn told(&self, speaks: bool, settled: bool, live: Vec<GenerationStats>, gone: Counters) {
        self.others.send_modify(|others| {
            *others = Others { known: true, speaks: speaks || others.speaks, settled, live, gone };
        });
    }

    /// Waits until it is known what the others counted: before that, totals would be those of this process alone.
    pub(crate) async fn known(&self) {
        // The sender is `self`.
        drop(self.others.subscribe().wait_for(|others| others.known).await);
    }

    /// Waits until no other generation answers operators any more, and what any has shown them is known here.
    pub(crate) async fn settled(&self) {
        // The sender is `self`.
        drop(self.others.subscribe().wait_for(|others| others.settled).await);
    }

    /// Another generation answers operators from now on.
    pub(crate) fn unsettled(&self) {
        self.others.send_if_modified(|others| std::mem::replace(&mut others.settled, false));
    }

    /// It drains: another one speaks from now on.
    pub(crate) fn drains(&self) {
        self.others.send_if_modified(|others| std::mem::replace(&mut others.speaks, false));
    }

    /// What this process has counted since its start, as `traffic` for the supervisor; empty when it counts nothing.
    pub(crate) fn traffic(&self) -> serde_json::Map<String, serde_json::Value> {
        let totals = Totals::of(&self.registry.snapshot());
        let mut traffic = serde_json::Map::new();
        // Counters can always be written.
        if !totals.is_empty()
            && let Ok(value) = serde_json::to_value(&totals)
        {
            traffic.insert(TRAFFIC.to_owned(), value);
        }
        traffic
    }

    /// What the node has counted. `own` is what this process said last.
    pub(crate) fn node(&self, own: &Counters) -> NodeCounters {
        let others = self.others.borrow();
        let mut node =
            NodeCounters { totals: Totals::said(&others.gone), accepts: Accepts::said(&others.gone), draining: 0 };
        // What was open when its generation went is open no more.
        node.totals.close();
        for counters in others.live.iter().map(|one| &one.stats).chain([own]) {
            node.totals.add(&Totals::said(counters));
            node.accepts.add(&Accepts::said(counters));
            node.draining += counters.told.saturating_sub(counters.left + counters.forced);
        }
        node
    }
}

/// What the node has counted, in all its generations.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeCounters {
    /// What passed through it.
    pub(crate) totals: Totals,
    /// Connections that could not be accepted.
    pub(crate) accepts: Accepts,
    /// Sessions that have been told to go and have not gone.
    pub(crate) draining: u64,
}

/// What only the generations of one supervisor know: the key is theirs alone.
pub(crate) fn token(key: &[u8; 16]) -> String {
    let mut token = [0; 16];
    // 16 bytes are far below what the hash can expand to.
    let _ = hkdf::Hkdf::<sha2::Sha256>::new(None, key).expand(b"moq-relay counters", &mut token);
    hex::encode(token)
}

#[cfg(test)]
mod tests {
    use super::{NodeCounters, Stats, Totals};
    use crate::config;
    use futures_util::FutureExt as _;
    use protocol::message::{Generation, GenerationStats, Stats as Counters};
    use serde_json::json;

    fn counted(opened: u64, closed: u64, bytes: u64) -> Counters {
        let json = json!({"moq": {"": {
            "publisher": {"bytes": bytes},
            "sessions": {"sessions_started": opened, "sessions_ended": closed},
        }}, "accept": {"tcp": {"exhausted": 3}}});
        let serde_json::Value::Object(traffic) = json else { unreachable!("an object") };
        Counters { sessions: opened - closed, told: 3, left: 1, traffic, ..Counters::default() }
    }

    fn settings() -> config::Stats {
        config::Stats {
            enabled: true,
            prefix: ".stats".into(),
            interval: std::time::Duration::from_secs(1),
            node: None,
        }
    }

    /// Totals that only grow, whoever counted: what a generation had counted does not go with it, but what it had open does.
    #[test]
    fn no_total_goes_down_when_a_generation_goes() {
        let stats = Stats::new(&settings(), true, false);
        let own = counted(10, 2, 100);
        stats.told(
            true,
            true,
            vec![GenerationStats { generation: Generation(1), stats: counted(5, 1, 70) }],
            Counters::default(),
        );
        let before = stats.node(&own);
        stats.told(true, true, Vec::new(), counted(5, 1, 70));
        let after = stats.node(&own);
        assert_eq!((before.draining, after.draining), (4, 2));
        let tier = |totals: &Totals| totals.0.get("").cloned().unwrap_or_default();
        let failed = |node: &NodeCounters| node.accepts.0["tcp"].exhausted;
        assert_eq!((failed(&before), failed(&after)), (6, 6));
        let (before, after) = (tier(&before.totals), tier(&after.totals));
        assert_eq!((before.publisher.bytes, after.publisher.bytes), (170, 170));
        assert_eq!((before.sessions.sessions_started, after.sessions.sessions_started), (15, 15));
        assert_eq!((before.sessions.active(), after.sessions.active()), (12, 8), "its open ones are gone");
    }

    /// A page that is answered before the predecessor has said all that it showed would have totals that go down.
    #[tokio::test]
    async fn it_is_settled_by_what_is_said_after_the_role_was_lost_alone() {
        let stats = Stats::new(&settings(), true, false);
        let settled = || stats.settled().now_or_never().is_some();
        assert!(!settled(), "nothing is known");
        stats.told(false, false, Vec::new(), Counters::default());
        assert!(!settled(), "the predecessor still answers");
        stats.told(false, true, Vec::new(), Counters::default());
        assert!(settled());
        stats.unsettled();
        assert!(!settled(), "the role was lost since");
        stats.told(true, true, Vec::new(), Counters::default());
        assert!(settled());
        assert!(Stats::new(&settings(), true, true).settled().now_or_never().is_some(), "alone there is nobody else");
    }

    /// Two that publish at once would be two nodes of one name.
    #[test]
    fn one_that_drains_speaks_no_more() {
        let stats = Stats::new(&settings(), false, false);
        assert!(!stats.others.borrow().speaks, "not before it is told");
        stats.told(false, true, Vec::new(), Counters::default());
        assert!(!stats.others.borrow().speaks, "being asked is not speaking");
        stats.told(true, true, Vec::new(), Counters::default());
        stats.told(false, true, Vec::new(), Counters::default());
        assert!(stats.others.borrow().speaks);
        stats.drains();
        assert!(!stats.others.borrow().speaks);
        assert!(Stats::new(&settings(), false, true).others.borrow().speaks, "alone it is the node");
    }
}
