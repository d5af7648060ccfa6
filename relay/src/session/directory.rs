//! Who has a session here, as operators are told: never with a credential.

use moq_net::Role;
use moq_tokio::tls::PeerIdentity;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The open sessions of this process.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The operator's name for the node; may be empty.
    node: String,
    open: Mutex<BTreeMap<String, Entry>>,
}

/// An open session, with the names that moq-relay 0.17 gives its parts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    /// 128 random bits in hexadecimal.
    pub(crate) id: String,
    /// As in [`Directory`].
    pub(crate) node: String,
    /// Who it is.
    #[serde(flatten)]
    pub(crate) caller: Caller,
    /// When it was admitted, in seconds since 1970.
    pub(crate) started: u64,
}

/// What is known of a client when it is admitted.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Caller {
    /// How it came.
    pub(crate) transport: Transport,
    /// Its address; a unix socket has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<SocketAddr>,
    /// Which address of ours it reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) local: Option<SocketAddr>,
    /// The server name of its TLS handshake, else the host that it addressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_name: Option<String>,
    /// The application protocol that was negotiated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alpn: Option<String>,
    /// The path that it dialed, without the query, which is where credentials are.
    pub(crate) path: String,
    /// The direction that it declared; none: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<Direction>,
    /// The certificate that it presented and that was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<Certificate>,
}

/// How a session came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    /// QUIC, with WebTransport or without.
    Quic,
    /// Plain TCP.
    Tcp,
    /// A unix socket.
    Unix,
}

/// A declared direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// It publishes.
    Publisher,
    /// It subscribes.
    Subscriber,
}

/// A client's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Certificate {
    /// Its first DNS name, else its common name, else its fingerprint.
    pub(crate) name: String,
    /// Its SHA-256, in hexadecimal.
    pub(crate) fingerprint: String,
    /// When it ends, in seconds since 1970.
    pub(crate) expires: Option<u64>,
    /// Who has issued it.
    pub(crate) issuer: String,
}

/// A session is listed for as long as this lives.
#[derive(Debug)]
pub(crate) struct Listed {
    directory: Arc<Directory>,
    id: String,
}

impl Directory {
    /// Without a session yet.
    pub(crate) fn new(node: String) -> Arc<Self> {
        Arc::new(Self { node, open: Mutex::default() })
    }

    /// Lists one that is admitted now.
    pub(crate) fn enter(self: &Arc<Self>, caller: Caller) -> Listed {
        let id = format!("{:032x}", rand::random::<u128>());
        let started = seconds(SystemTime::now());
        let entry = Entry { id: id.clone(), node: self.node.clone(), caller, started };
        self.open().insert(id.clone(), entry);
        Listed { directory: self.clone(), id }
    }

    /// Those that are wanted.
    pub(crate) fn list(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.open().values().filter(|entry| wanted(entry)).cloned().collect()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // Each change is one step, so a panic leaves nothing half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.directory.open().remove(&self.id);
    }
}

impl Caller {
    /// Of whom no more is known yet than how it came.
    pub(crate) fn over(transport: Transport) -> Self {
        Self {
            transport,
            remote: None,
            local: None,
            server_name: None,
            alpn: None,
            path: String::new(),
            role: None,
            tls: None,
        }
    }

    /// What it dialed and declared.
    pub(crate) fn asking(self, target: &str, role: Option<Role>) -> Self {
        let path = target.split_once('?').map_or(target, |(path, _query)| path);
        let role = match role {
            Some(Role::Publisher) => Some(Direction::Publisher),
            Some(Role::Subscriber) => Some(Direction::Subscriber),
            // Both, or a direction of a later version.
            None | Some(_) => None,
        };
        Self { path: if path.is_empty() { "/".to_owned() } else { path.to_owned() }, role, ..self }
    }
}

impl Certificate {
    /// Of a chain that was verified.
    pub(crate) fn of(identity: &PeerIdentity) -> Option<Self> {
        let fingerprint = identity.fingerprint()?;
        Some(Self {
            name: identity.name().unwrap_or_else(|| fingerprint.clone()),
            expires: identity.expiry().map(seconds),
            issuer: identity.issuer().unwrap_or_default(),
            fingerprint,
        })
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{Caller, Directory, Transport};
    use moq_net::Role;
    use serde_json::json;

    /// The names are those of moq-relay 0.17, and what is not known is left out.
    #[test]
    fn a_session_is_listed_until_it_ends_and_without_its_query() {
        let directory = Directory::new("edge-1".to_owned());
        let caller = Caller { remote: Some(([203, 0, 113, 9], 4433).into()), ..Caller::over(Transport::Quic) };
        let listed = directory.enter(caller.asking("/room/a?jwt=secret", Some(Role::Publisher)));
        let unix = directory.enter(Caller::over(Transport::Unix).asking("", None));
        let mut sessions = directory.list(|entry| entry.caller.transport == Transport::Quic);
        let session = sessions.pop().expect("it is listed");
        assert!(sessions.is_empty());
        let json = serde_json::to_value(&session).expect("JSON");
        assert_eq!(
            json,
            json!({
                "id": session.id, "node": "edge-1", "transport": "quic", "remote": "203.0.113.9:4433",
                "path": "/room/a", "role": "publisher", "started": session.started,
            })
        );
        assert_eq!(session.id.len(), 32);
        drop(listed);
        let paths: Vec<_> = directory.list(|_| true).into_iter().map(|entry| entry.caller.path).collect();
        assert_eq!(paths, ["/"]);
        drop(unix);
        assert!(directory.list(|_| true).is_empty());
    }
}
