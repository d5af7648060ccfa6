//! Counters by broadcast and by root, as the tracks of a stats broadcast carry them.

use super::totals::{close, close_sessions};
use moq_net::stats::{Report, Role};
use moq_stats::{SessionsFrame, TrafficFrame, sessions_track, traffic_track};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One frame per track, by the name of the track.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Frames {
    /// By broadcast.
    pub(super) traffic: BTreeMap<String, TrafficFrame>,
    /// By the root of the sessions.
    pub(super) sessions: BTreeMap<String, SessionsFrame>,
}

impl Frames {
    /// What this process counted.
    pub(super) fn of(report: &Report) -> Self {
        let mut frames = Self::default();
        for entry in &report.traffic {
            for (role, traffic) in [(Role::Publisher, entry.publisher), (Role::Subscriber, entry.subscriber)] {
                let frame = frames.traffic.entry(traffic_track(&entry.tier, role, false)).or_default();
                frame.entry(entry.path.to_string()).or_default().add(traffic);
            }
        }
        for entry in &report.sessions {
            let frame = frames.sessions.entry(sessions_track(&entry.tier, false)).or_default();
            frame.entry(entry.root.to_string()).or_default().add(entry.presence);
        }
        frames
    }

    /// Adds what another generation counted.
    pub(super) fn add(&mut self, other: &Self) {
        for (track, rows) in &other.traffic {
            let frame = self.traffic.entry(track.clone()).or_default();
            for (path, traffic) in rows {
                frame.entry(path.clone()).or_default().add(*traffic);
            }
        }
        for (track, rows) in &other.sessions {
            let frame = self.sessions.entry(track.clone()).or_default();
            for (root, presence) in rows {
                frame.entry(root.clone()).or_default().add(*presence);
            }
        }
    }

    /// Its generation has gone, and with it what it had open.
    pub(super) fn close(&mut self) {
        self.traffic.values_mut().flat_map(BTreeMap::values_mut).for_each(close);
        self.sessions.values_mut().flat_map(BTreeMap::values_mut).for_each(close_sessions);
    }

    /// Keeps the rows that `live` has too. A row without any life begins anew at 0 if it comes back, as on every relay.
    pub(super) fn keep(&mut self, live: &Self) {
        for (track, rows) in &mut self.traffic {
            let known = live.traffic.get(track);
            rows.retain(|path, _| known.is_some_and(|known| known.contains_key(path)));
        }
        for (track, rows) in &mut self.sessions {
            let known = live.sessions.get(track);
            rows.retain(|root, _| known.is_some_and(|known| known.contains_key(root)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Frames;
    use serde_json::json;

    fn frames(path: &str, bytes: u64, open: u64) -> Frames {
        let json = json!({
            "traffic": {"publisher.json": {path: {"bytes": bytes, "subscriptions_started": open}}},
            "sessions": {"sessions.json": {"": {"sessions_started": open}}},
        });
        serde_json::from_value(json).expect("frames")
    }

    /// A viewer that moves over must not look like new traffic of the old one's size, nor like a drop.
    #[test]
    fn what_a_gone_generation_counted_is_kept_closed_while_its_row_lives() {
        let mut carried = frames("live/0", 100, 2);
        carried.close();
        carried.add(&{
            let mut other = frames("live/1", 7, 1);
            other.close();
            other
        });
        let own = frames("live/0", 5, 1);
        carried.keep(&own);
        let mut node = own.clone();
        node.add(&carried);
        let rows = &node.traffic["publisher.json"];
        assert_eq!(rows.keys().collect::<Vec<_>>(), ["live/0"], "nothing of live/1 lives");
        assert_eq!((rows["live/0"].bytes, rows["live/0"].active_subscriptions()), (105, 1));
        assert_eq!(node.sessions["sessions.json"][""].active(), 1);
        assert_eq!(node.sessions["sessions.json"][""].sessions_started, 4);
    }
}
