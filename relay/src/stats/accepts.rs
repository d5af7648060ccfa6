//! Connections that could not be accepted, by listener.
//!
//! Only listeners that call `accept(2)` are there: QUIC has none that could fail.

use super::Counters;
use moq_tokio::accept::{Failure, Health};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The key of these counters within `traffic`.
const ACCEPTS: &str = "accept";

/// By the name of the listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Accepts(pub(crate) BTreeMap<String, Failures>);

/// Failed calls of one listener, by what they mean (the classes of moq-relay 0.17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Failures {
    /// A client had gone before it was accepted: nobody's fault here.
    pub(crate) connection: u64,
    /// The process or the machine has run out of descriptors or memory.
    pub(crate) exhausted: u64,
    /// Anything else.
    pub(crate) unknown: u64,
}

impl Accepts {
    /// What these listeners have counted: each is there from its start.
    pub(crate) fn of(listeners: &[Health]) -> Self {
        let failures = |health: &Health| Failures {
            connection: health.failures(Failure::Connection),
            exhausted: health.failures(Failure::Exhausted),
            unknown: health.failures(Failure::Unknown),
        };
        Self(listeners.iter().map(|health| (health.listener().to_owned(), failures(health))).collect())
    }

    /// Puts them where the supervisor adds them up.
    pub(crate) fn write(&self, traffic: &mut serde_json::Map<String, serde_json::Value>) {
        // Counters can always be written.
        if !self.0.is_empty()
            && let Ok(value) = serde_json::to_value(self)
        {
            traffic.insert(ACCEPTS.to_owned(), value);
        }
    }

    /// What a generation said. One of another kind says nothing that we know.
    pub(super) fn said(counters: &Counters) -> Self {
        counters.traffic.get(ACCEPTS).and_then(|value| Self::deserialize(value).ok()).unwrap_or_default()
    }

    /// Adds another generation's.
    pub(super) fn add(&mut self, other: &Self) {
        for (listener, other) in &other.0 {
            let failures = self.0.entry(listener.clone()).or_default();
            failures.connection = failures.connection.saturating_add(other.connection);
            failures.exhausted = failures.exhausted.saturating_add(other.exhausted);
            failures.unknown = failures.unknown.saturating_add(other.unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Accepts, Counters, Failures};
    use moq_tokio::accept::Health;

    /// A series that comes into being with its first failure can't be watched: until then there is nothing to compare with.
    #[test]
    fn a_listener_is_there_before_it_has_failed_and_adds_up_with_others() {
        let tcp = Health::new("tcp");
        let mut counters = Counters::default();
        Accepts::of(&[tcp.clone(), Health::new("internal")]).write(&mut counters.traffic);
        let mut node = Accepts::said(&counters);
        assert_eq!(node.0.keys().collect::<Vec<_>>(), ["internal", "tcp"]);
        assert!(node.0.values().all(|failures| *failures == Failures::default()));

        let exhausted = std::io::Error::from_raw_os_error(libc::EMFILE);
        assert!(tcp.failed(&exhausted).is_some());
        node.add(&Accepts::of(std::slice::from_ref(&tcp)));
        node.add(&Accepts::of(&[tcp, Health::new("unix")]));
        assert_eq!(node.0["tcp"], Failures { exhausted: 2, ..Failures::default() });
        assert_eq!((node.0["unix"], node.0["internal"]), (Failures::default(), Failures::default()));
    }
}
