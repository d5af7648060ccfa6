//! The peers that this process has dialed and has a session with, as operators are told: never with a credential.

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use url::Url;

/// Open sessions by their numbers, each with where it leads to.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    sessions: BTreeMap<u64, String>,
    next: u64,
}

/// All peers, with the names that moq-relay 0.17 gives the parts.
#[derive(Debug, Serialize)]
pub(crate) struct Nodes {
    nodes: Vec<PeerNode>,
}

#[derive(Debug, Serialize)]
struct PeerNode {
    /// Its URL, without user, password, path and query.
    node: String,
    /// The sessions with it.
    connections: Vec<Connection>,
}

#[derive(Debug, Serialize)]
struct Connection {
    /// As in the log lines of the session; counted from 0 in each process.
    id: u64,
}

/// A session counts for as long as this lives.
#[derive(Debug)]
pub(crate) struct Held {
    peers: Arc<Peers>,
    id: u64,
}

impl Peers {
    /// One more session, with the relay that was dialed at that place.
    pub(crate) fn hold(self: &Arc<Self>, place: &Url) -> Held {
        let mut open = self.open();
        let id = open.next;
        open.next += 1;
        open.sessions.insert(id, shown(place));
        Held { peers: self.clone(), id }
    }

    /// How many sessions there are.
    pub(crate) fn sessions(&self) -> usize {
        self.open().sessions.len()
    }

    /// With whom.
    pub(crate) fn nodes(&self) -> Nodes {
        let mut nodes = BTreeMap::<String, Vec<Connection>>::new();
        for (id, node) in &self.open().sessions {
            nodes.entry(node.clone()).or_default().push(Connection { id: *id });
        }
        Nodes { nodes: nodes.into_iter().map(|(node, connections)| PeerNode { node, connections }).collect() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Each change is one step, so a panic leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.peers.open().sessions.remove(&self.id);
    }
}

/// The URL with nothing in it that may be a credential.
fn shown(place: &Url) -> String {
    let mut url = place.clone();
    url.set_path("");
    url.set_query(None);
    url.set_fragment(None);
    // A URL that can be dialed has a host, and so may have neither.
    let _ = (url.set_username(""), url.set_password(None));
    url.into()
}

#[cfg(test)]
mod tests {
    use super::Peers;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn sessions_are_listed_by_node_until_they_end_and_without_a_credential() {
        let peers = Arc::new(Peers::default());
        let hold = |url: &str| peers.hold(&url.parse().expect(url));
        let first = hold("https://user:secret@b.test/secret?jwt=secret#secret");
        let other = hold("moqt://a.test:4443/?jwt=secret");
        let second = hold("https://b.test:443/");
        assert_eq!(
            serde_json::to_value(peers.nodes()).expect("JSON"),
            json!({"nodes": [
                {"node": "https://b.test/", "connections": [{"id": first.id()}, {"id": second.id()}]},
                {"node": "moqt://a.test:4443", "connections": [{"id": other.id()}]},
            ]})
        );
        drop((first, second));
        assert_eq!(peers.sessions(), 1);
        drop(other);
        assert_eq!(serde_json::to_value(peers.nodes()).expect("JSON"), json!({"nodes": []}));
    }
}
