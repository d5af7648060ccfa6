//! Counters summed over all broadcasts, by tier: small enough for a message to the supervisor.

use super::TRAFFIC;
use moq_net::stats::{Presence, Role, Snapshot, Traffic};
use protocol::message::Stats as Counters;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// By the tier's label; empty for the default one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Totals(pub(crate) BTreeMap<String, TierTotals>);

/// Of one tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TierTotals {
    /// What the node published to others.
    pub(crate) publisher: Traffic,
    /// What others published to it.
    pub(crate) subscriber: Traffic,
    /// Connected sessions.
    pub(crate) sessions: Presence,
    /// Bytes of control messages, by class.
    pub(crate) control: BTreeMap<String, Control>,
}

/// Bytes of control messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Control {
    /// Sent.
    pub(crate) tx: u64,
    /// Received.
    pub(crate) rx: u64,
}

impl Totals {
    /// What the registry has.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut totals = Self::default();
        for (tier, role, traffic) in snapshot.traffic() {
            let tier = totals.tier(tier.as_str());
            match role {
                Role::Publisher => tier.publisher = traffic,
                Role::Subscriber => tier.subscriber = traffic,
            }
        }
        for (tier, presence) in snapshot.sessions() {
            totals.tier(tier.as_str()).sessions = presence;
        }
        for (tier, class, bytes) in snapshot.control() {
            let control = Control { tx: bytes.tx, rx: bytes.rx };
            totals.tier(tier.as_str()).control.insert(class.as_str().to_owned(), control);
        }
        totals
    }

    /// What a generation said. One of another kind says nothing that we know.
    pub(super) fn said(counters: &Counters) -> Self {
        counters.traffic.get(TRAFFIC).and_then(|value| Self::deserialize(value).ok()).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds another generation's.
    pub(super) fn add(&mut self, other: &Self) {
        for (name, other) in &other.0 {
            let tier = self.tier(name);
            tier.publisher.add(other.publisher);
            tier.subscriber.add(other.subscriber);
            tier.sessions.add(other.sessions);
            for (class, bytes) in &other.control {
                let control = tier.control.entry(class.clone()).or_default();
                control.tx += bytes.tx;
                control.rx += bytes.rx;
            }
        }
    }

    /// All that was begun has ended.
    pub(super) fn close(&mut self) {
        for tier in self.0.values_mut() {
            close(&mut tier.publisher);
            close(&mut tier.subscriber);
            close_sessions(&mut tier.sessions);
        }
    }

    fn tier(&mut self, name: &str) -> &mut TierTotals {
        self.0.entry(name.to_owned()).or_default()
    }
}

/// Ends what was begun on one slice.
pub(super) fn close(traffic: &mut Traffic) {
    traffic.announces_ended = traffic.announces_ended.max(traffic.announces_started);
    traffic.broadcasts_ended = traffic.broadcasts_ended.max(traffic.broadcasts_started);
    traffic.subscriptions_ended = traffic.subscriptions_ended.max(traffic.subscriptions_started);
}

/// Ends the sessions of one slice.
pub(super) fn close_sessions(presence: &mut Presence) {
    presence.sessions_ended = presence.sessions_ended.max(presence.sessions_started);
}
