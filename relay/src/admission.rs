//! Who may do what: the public rules, applied to the path that a client dialed; and who is a peer.
//!
//! The rules are patterns over broadcast paths from the root. A session is rooted at the path it dialed and gets what
//! the rules say below that path; a session that would get nothing is refused.

use crate::cluster::peer::Token;
use crate::config;
use moq_net::{Path, PathOwned, Pattern, Patterns, Role, origin};

/// The rules for everybody.
#[derive(Clone, Debug)]
pub struct Rules {
    publish: Patterns,
    subscribe: Patterns,
    /// What peers present.
    token: Option<Token>,
}

/// What a session is to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A client: a publisher, a viewer, or a relay that has not proved to be a peer.
    Client,
    /// Another node of the cluster. It sees hidden broadcasts, its routes are marked as a peer's, and a drain tells it its
    /// own URL.
    Peer,
}

/// Why a session is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It presents a credential that is not the cluster's token, and nothing here verifies another. Its holder expects it
    /// to count, so it is refused rather than ignored.
    #[error("it presents a token that nothing here verifies")]
    Credential,
    /// The rules reach nothing at or below its path.
    #[error("the rules grant nothing at its path")]
    Nothing,
    /// It declared a direction that the rules don't grant at its path.
    #[error("the rules don't grant the direction it declared")]
    Direction,
}

/// What one session may do: patterns below its root. At least one side is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    root: PathOwned,
    publish: Patterns,
    subscribe: Patterns,
    standing: Standing,
}

/// What a session is connected to: each side `None` when it is not granted or not wanted.
pub struct Scope {
    /// What the client may publish into.
    pub publish: Option<origin::Producer>,
    /// What the client may subscribe to.
    pub subscribe: Option<origin::Consumer>,
}

impl Rules {
    /// The rules of these settings, and the token that a peer is known by.
    #[must_use]
    pub fn new(settings: &config::Auth, token: Option<Token>) -> Self {
        Self { publish: settings.publish.clone(), subscribe: settings.subscribe.clone(), token }
    }

    /// Admits a session that dialed `target`, a path and possibly a query. `certified`: it has presented a certificate of
    /// an authority of ours.
    ///
    /// # Errors
    /// It brings a `jwt` in the query that is not the cluster's token, or the rules reach nothing there.
    pub fn admit(&self, target: &str, certified: bool) -> Result<Grant, Refusal> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let root = Path::new(path).to_owned();
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        if let Some((_, presented)) = pairs.find(|(key, token)| key == "jwt" && !token.is_empty()) {
            if !self.token.as_ref().is_some_and(|token| token.is(&presented)) {
                return Err(Refusal::Credential);
            }
            let all: Patterns = Pattern::subtree("").into_iter().collect();
            return Ok(Grant { root, publish: all.clone(), subscribe: all, standing: Standing::Peer });
        }
        let grant = Grant {
            publish: self.publish.rebase(root.as_str()),
            subscribe: self.subscribe.rebase(root.as_str()),
            root,
            standing: if certified { Standing::Peer } else { Standing::Client },
        };
        if grant.publish.is_empty() && grant.subscribe.is_empty() { Err(Refusal::Nothing) } else { Ok(grant) }
    }
}

impl Grant {
    /// Keeps the direction that the client declared (moq-lite-05 and later), so that a pure publisher is not announced
    /// every broadcast of the node, nor a pure subscriber asked for what it publishes.
    ///
    /// # Errors
    /// That direction is not granted: better refused than accepted and silent.
    pub fn pruned(mut self, role: Option<Role>) -> Result<Self, Refusal> {
        match role {
            Some(Role::Publisher) => self.subscribe = Patterns::default(),
            Some(Role::Subscriber) => self.publish = Patterns::default(),
            // Both, or a direction of a later version: each request is checked when it comes.
            None | Some(_) => {}
        }
        if self.publish.is_empty() && self.subscribe.is_empty() { Err(Refusal::Direction) } else { Ok(self) }
    }

    /// Connects the grant to the node's origin.
    ///
    /// # Errors
    /// The path is longer than the origin takes.
    pub fn scope(&self, origin: &origin::Producer) -> Result<Scope, Refusal> {
        let side = |patterns: &Patterns| {
            if patterns.is_empty() {
                return Ok(None);
            }
            origin.scope(&self.root, patterns).map(Some).map_err(|_| Refusal::Nothing)
        };
        let publish = side(&self.publish)?;
        let (publish, hidden) = match self.standing {
            Standing::Client => (publish, false),
            Standing::Peer => (publish.map(origin::Producer::peer), true),
        };
        Ok(Scope { publish, subscribe: side(&self.subscribe)?.map(|side| side.consume().with_hidden(hidden)) })
    }

    /// What the session is to this node.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The path that the session is rooted at.
    #[must_use]
    pub fn root(&self) -> &str {
        self.root.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, Rules, Standing};
    use crate::cluster::peer::Token;
    use moq_net::{Patterns, Role};

    fn patterns(all: &[&str]) -> Patterns {
        all.iter().map(|text| text.parse::<moq_net::Pattern>().expect("a pattern")).collect()
    }

    fn rules() -> Rules {
        Rules {
            publish: patterns(&["anon/**"]),
            subscribe: patterns(&["anon/**", "*/chat"]),
            token: Token::new("cluster"),
        }
    }

    /// The rules are read from the root of the node, not from the path that the client chose.
    #[test]
    fn a_session_gets_what_the_rules_say_below_its_path() {
        for (path, root, publish, subscribe) in [
            ("", "", &["anon/**"][..], &["anon/**", "*/chat"][..]),
            ("/", "", &["anon/**"], &["anon/**", "*/chat"]),
            ("/anon", "anon", &["**"], &["**", "chat"]),
            ("anon/room/", "anon/room", &["**"], &["**"]),
            ("/rooms", "rooms", &[], &["chat"]),
            ("/anon?a=1&jwt=", "anon", &["**"], &["**", "chat"]),
        ] {
            let grant = rules().admit(path, false).expect(path);
            assert_eq!(grant.root(), root, "{path}");
            assert_eq!(grant.publish, patterns(publish), "{path}");
            assert_eq!(grant.subscribe, patterns(subscribe), "{path}");
        }
    }

    /// A session without any right would be accepted and stay silent for ever.
    #[test]
    fn a_path_without_rights_is_refused() {
        for path in ["/rooms/123", "/other/room", "/anonymous/room"] {
            assert_eq!(rules().admit(path, false), Err(Refusal::Nothing), "{path}");
        }
    }

    /// Nothing here can verify a token, so it must not look as if it had counted.
    #[test]
    fn a_token_is_refused() {
        assert_eq!(rules().admit("/anon?a=1&jwt=eyJ", false), Err(Refusal::Credential));
    }

    /// The token of the cluster opens everything at the path; a certificate opens nothing more, but tells a peer.
    #[test]
    fn a_peer_is_known_by_the_token_or_a_certificate() {
        for path in ["/rooms?jwt=cluster", "/rooms?a=1&jwt=cl%75ster"] {
            let grant = rules().admit(path, false).expect("granted");
            assert_eq!((grant.root(), grant.standing()), ("rooms", Standing::Peer), "{path}");
            assert_eq!((grant.publish, grant.subscribe), (patterns(&["**"]), patterns(&["**"])), "{path}");
        }
        let certified = rules().admit("/rooms", true).expect("granted");
        assert_eq!((certified.standing(), certified.publish.is_empty()), (Standing::Peer, true));
        assert_eq!(rules().admit("/rooms", false).expect("granted").standing(), Standing::Client);
        let none = Rules { token: None, ..rules() };
        assert_eq!(none.admit("/rooms?jwt=cluster", true), Err(Refusal::Credential));
    }

    /// A declared direction that is not granted is refused; the other one is left out.
    #[test]
    fn the_declared_direction_prunes_the_grant() {
        let rooms = rules().admit("/rooms", false).expect("granted");
        assert_eq!(rooms.clone().pruned(Some(Role::Publisher)), Err(Refusal::Direction));
        assert_eq!(rooms.clone().pruned(Some(Role::Subscriber)), Ok(rooms.clone()));
        assert_eq!(rooms.clone().pruned(None), Ok(rooms));
        let anon = rules().admit("/anon", false).expect("granted");
        let publisher = anon.pruned(Some(Role::Publisher)).expect("granted");
        assert!(publisher.subscribe.is_empty() && !publisher.publish.is_empty());
    }
}
