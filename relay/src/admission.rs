//! Who may do what: the public rules, applied to the path that a client dialed.
//!
//! The rules are patterns over broadcast paths from the root. A session is rooted at the path it dialed and gets what
//! the rules say below that path; a session that would get nothing is refused.

use crate::config;
use moq_net::{Path, PathOwned, Patterns, Role, origin};

/// The rules for everybody.
#[derive(Clone, Debug)]
pub struct Rules {
    publish: Patterns,
    subscribe: Patterns,
}

/// Why a session is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It presents a credential, and public rules can't verify one. Its holder expects it to count, so it is refused
    /// rather than ignored.
    #[error("it presents a token, and public rules verify none")]
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
}

/// What a session is connected to: each side `None` when it is not granted or not wanted.
pub struct Scope {
    /// What the client may publish into.
    pub publish: Option<origin::Producer>,
    /// What the client may subscribe to.
    pub subscribe: Option<origin::Consumer>,
}

impl Rules {
    /// The rules of these settings.
    #[must_use]
    pub fn new(settings: &config::Auth) -> Self {
        Self { publish: settings.publish.clone(), subscribe: settings.subscribe.clone() }
    }

    /// Admits a session that dialed `target`, a path and possibly a query.
    ///
    /// # Errors
    /// It brings a `jwt` in the query, or the rules reach nothing there.
    pub fn admit(&self, target: &str) -> Result<Grant, Refusal> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let token = |pair: &str| pair.strip_prefix("jwt=").is_some_and(|token| !token.is_empty());
        if query.split('&').any(token) {
            return Err(Refusal::Credential);
        }
        let root = Path::new(path).to_owned();
        let grant = Grant {
            publish: self.publish.rebase(root.as_str()),
            subscribe: self.subscribe.rebase(root.as_str()),
            root,
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
        Ok(Scope {
            publish: side(&self.publish)?,
            // Hidden routes are for cluster peers.
            subscribe: side(&self.subscribe)?.map(|side| side.consume().with_hidden(false)),
        })
    }

    /// The path that the session is rooted at.
    #[must_use]
    pub fn root(&self) -> &str {
        self.root.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, Rules};
    use moq_net::{Patterns, Role};

    fn patterns(all: &[&str]) -> Patterns {
        all.iter().map(|text| text.parse::<moq_net::Pattern>().expect("a pattern")).collect()
    }

    fn rules() -> Rules {
        Rules { publish: patterns(&["anon/**"]), subscribe: patterns(&["anon/**", "*/chat"]) }
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
            let grant = rules().admit(path).expect(path);
            assert_eq!(grant.root(), root, "{path}");
            assert_eq!(grant.publish, patterns(publish), "{path}");
            assert_eq!(grant.subscribe, patterns(subscribe), "{path}");
        }
    }

    /// A session without any right would be accepted and stay silent for ever.
    #[test]
    fn a_path_without_rights_is_refused() {
        for path in ["/rooms/123", "/other/room", "/anonymous/room"] {
            assert_eq!(rules().admit(path), Err(Refusal::Nothing), "{path}");
        }
    }

    /// Nothing here can verify a token, so it must not look as if it had counted.
    #[test]
    fn a_token_is_refused() {
        assert_eq!(rules().admit("/anon?a=1&jwt=eyJ"), Err(Refusal::Credential));
    }

    /// A declared direction that is not granted is refused; the other one is left out.
    #[test]
    fn the_declared_direction_prunes_the_grant() {
        let rooms = rules().admit("/rooms").expect("granted");
        assert_eq!(rooms.clone().pruned(Some(Role::Publisher)), Err(Refusal::Direction));
        assert_eq!(rooms.clone().pruned(Some(Role::Subscriber)), Ok(rooms.clone()));
        assert_eq!(rooms.clone().pruned(None), Ok(rooms));
        let anon = rules().admit("/anon").expect("granted");
        let publisher = anon.pruned(Some(Role::Publisher)).expect("granted");
        assert!(publisher.subscribe.is_empty() && !publisher.publish.is_empty());
    }
}
