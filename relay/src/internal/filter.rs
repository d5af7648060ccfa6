//! Which sessions are meant: a query, each part of which a session must match. The names are those of moq-relay 0.17.

use crate::session::{Direction, Entry, Transport};
use ipnet::IpNet;
use moq_net::Pattern;
use std::net::{IpAddr, SocketAddr};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter(Vec<Part>);

/// One part of the query.
#[derive(Clone, Debug)]
enum Part {
    Id(String),
    Node(String),
    Transport(Transport),
    /// Without its port. An IPv4 address mapped into IPv6 is the IPv4 one.
    Remote(IpNet),
    Local(SocketAddr),
    ServerName(String),
    Alpn(String),
    Path(Pattern),
    Role(Direction),
    TlsName(String),
    TlsFingerprint(String),
    TlsIssuer(String),
}

/// Why a query is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FilterError {
    /// Sessions are not told apart by that. What it was is not shown: it may be a credential.
    #[error(
        "unknown filter; there are id, node, transport, remote, local, server_name, alpn, path, role, tls.name, \
         tls.fingerprint and tls.issuer"
    )]
    Unknown,
    /// Its value can't be read.
    #[error("{name} can't be read; it is {wanted}")]
    Value {
        /// Which one.
        name: &'static str,
        /// What it should have been.
        wanted: &'static str,
    },
}

impl Filter {
    /// Reads a query. Without one, every session is meant.
    ///
    /// # Errors
    /// It has a part that is unknown or can't be read.
    pub(super) fn parse(query: &str) -> Result<Self, FilterError> {
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.map(|(name, value)| Part::parse(&name, &value)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether that session is meant.
    pub(super) fn matches(&self, session: &Entry) -> bool {
        self.0.iter().all(|part| part.matches(session))
    }
}

impl Part {
    fn parse(name: &str, value: &str) -> Result<Self, FilterError> {
        let text = value.to_owned();
        Ok(match name {
            "id" => Self::Id(text),
            "node" => Self::Node(text),
            "transport" => Self::Transport(read("transport", "quic, tcp or unix", transport(value))?),
            "remote" => Self::Remote(read("remote", "an IP address, or a network as in 10.0.0.0/8", network(value))?),
            "local" => Self::Local(read("local", "an IP address with a port", value.parse().ok())?),
            "server_name" => Self::ServerName(text),
            "alpn" => Self::Alpn(text),
            "path" => Self::Path(read("path", "a pattern, as in room/**", value.parse().ok())?),
            "role" => Self::Role(read("role", "publisher or subscriber", direction(value))?),
            "tls.name" => Self::TlsName(text),
            "tls.fingerprint" => Self::TlsFingerprint(text),
            "tls.issuer" => Self::TlsIssuer(text),
            _ => return Err(FilterError::Unknown),
        })
    }

    fn matches(&self, session: &Entry) -> bool {
        let caller = &session.caller;
        let tls = caller.tls.as_ref();
        match self {
            Self::Id(id) => session.id == *id,
            Self::Node(node) => session.node == *node,
            Self::Transport(transport) => caller.transport == *transport,
            Self::Remote(net) => caller.remote.is_some_and(|remote| net.contains(&remote.ip().to_canonical())),
            Self::Local(local) => caller.local == Some(*local),
            Self::ServerName(name) => caller.server_name.as_ref() == Some(name),
            Self::Alpn(alpn) => caller.alpn.as_ref() == Some(alpn),
            Self::Path(pattern) => pattern.matches(caller.path.trim_start_matches('/')),
            Self::Role(role) => caller.role == Some(*role),
            Self::TlsName(name) => tls.is_some_and(|tls| tls.name == *name),
            Self::TlsFingerprint(fingerprint) => tls.is_some_and(|tls| tls.fingerprint == *fingerprint),
            Self::TlsIssuer(issuer) => tls.is_some_and(|tls| tls.issuer == *issuer),
        }
    }
}

fn read<T>(name: &'static str, wanted: &'static str, value: Option<T>) -> Result<T, FilterError> {
    value.ok_or(FilterError::Value { name, wanted })
}

fn transport(text: &str) -> Option<Transport> {
    match text {
        "quic" => Some(Transport::Quic),
        "tcp" => Some(Transport::Tcp),
        "unix" => Some(Transport::Unix),
        _ => None,
    }
}

fn direction(text: &str) -> Option<Direction> {
    match text {
        "publisher" => Some(Direction::Publisher),
        "subscriber" => Some(Direction::Subscriber),
        _ => None,
    }
}

/// An address is a network of one. ::ffff:0:0/96 is where IPv6 has the IPv4 addresses (RFC 4291 §2.5.5.2).
fn network(text: &str) -> Option<IpNet> {
    let net = text.parse::<IpNet>().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()))?;
    match net.addr().to_canonical() {
        v4 @ IpAddr::V4(_) if net.addr().is_ipv6() => IpNet::new(v4, net.prefix_len().checked_sub(96)?).ok(),
        IpAddr::V4(_) | IpAddr::V6(_) => Some(net),
    }
}

#[cfg(test)]
mod tests {
    use super::{Filter, FilterError};
    use crate::session::{Caller, Certificate, Directory, Entry, Transport};
    use moq_net::Role;

    fn session() -> Entry {
        let directory = Directory::new("edge-1".to_owned());
        let caller = Caller {
            remote: Some("[::ffff:203.0.113.9]:4433".parse().expect("an address")),
            local: Some(([192, 0, 2, 1], 443).into()),
            server_name: Some("relay.test".to_owned()),
            alpn: Some("moq-lite-06".to_owned()),
            tls: Some(Certificate {
                name: "peer.test".to_owned(),
                fingerprint: "ab".repeat(32),
                expires: None,
                issuer: "CN=ours".to_owned(),
            }),
            ..Caller::over(Transport::Quic)
        };
        let _listed = directory.enter(caller.asking("/room/a", Some(Role::Subscriber)));
        directory.list(|_| true).remove(0)
    }

    /// A filter that matches too much would have an operator believe that more sessions are concerned than are.
    #[test]
    fn each_part_must_match() {
        let session = session();
        let fingerprint = "ab".repeat(32);
        for (query, matches) in [
            (String::new(), true),
            (format!("id={}", session.id), true),
            ("id=0".to_owned(), false),
            ("node=edge-1".to_owned(), true),
            ("node=edge-2".to_owned(), false),
            ("transport=quic&role=subscriber".to_owned(), true),
            ("transport=tcp&role=subscriber".to_owned(), false),
            ("role=publisher".to_owned(), false),
            ("remote=203.0.113.9".to_owned(), true),
            ("remote=203.0.113.0/24".to_owned(), true),
            ("remote=::ffff:203.0.113.0/120".to_owned(), true),
            ("remote=203.0.113.8".to_owned(), false),
            ("remote=::/0".to_owned(), false),
            ("local=192.0.2.1:443".to_owned(), true),
            ("local=192.0.2.1:444".to_owned(), false),
            ("server_name=relay.test&alpn=moq-lite-06".to_owned(), true),
            ("server_name=other.test".to_owned(), false),
            ("alpn=h3".to_owned(), false),
            ("path=room/**".to_owned(), true),
            ("path=room/a".to_owned(), true),
            ("path=room".to_owned(), false),
            (format!("tls.name=peer.test&tls.issuer=CN%3Dours&tls.fingerprint={fingerprint}"), true),
            ("tls.name=other.test".to_owned(), false),
        ] {
            let filter = Filter::parse(&query).expect(&query);
            assert_eq!(filter.matches(&session), matches, "{query}");
        }
    }

    #[test]
    fn what_can_not_be_asked_for_is_refused_without_showing_it() {
        for (query, name) in [
            ("query=jwt%3Dsecret", None),
            ("jwt=secret", None),
            ("secret", None),
            ("transport=secret", Some("transport")),
            ("remote=secret", Some("remote")),
            ("remote=10.0.0.0/33", Some("remote")),
            ("remote=::ffff:10.0.0.0/64", Some("remote")),
            ("local=192.0.2.1", Some("local")),
            ("role=both", Some("role")),
            ("path=%2F%2F", Some("path")),
        ] {
            let refused = Filter::parse(query).expect_err(query);
            assert!(!refused.to_string().contains("secret"), "{refused}");
            match (&refused, name) {
                (FilterError::Unknown, None) => {}
                (FilterError::Value { name, .. }, Some(expected)) => assert_eq!(*name, expected),
                (FilterError::Unknown | FilterError::Value { .. }, _) => panic!("{query}: {refused:?}"),
            }
        }
    }
}
