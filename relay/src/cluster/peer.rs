//! The relays to dial, as they are configured, and the token that peers know each other by.

use crate::reconnect::{DEFAULT_PORT, SCHEMES, same_place};
use serde::Deserialize;
use std::fmt;
use url::Url;
use zeroize::Zeroizing;

/// A relay to dial. Its URL may carry a credential, which it shows to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    url: Url,
    cost: Option<u64>,
}

/// Why a text is not a peer. It never shows the text, which may carry a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It is not a URL with a scheme and a host.
    #[error("it is not a URL; write it in full, as in https://relay.example/")]
    Url,
    /// Its scheme can't be dialed.
    #[error("its scheme is {0}, which is not dialed; use https (WebTransport) or moqt (raw QUIC)")]
    Scheme(String),
    /// `?cost=` is not a number, or given twice.
    #[error("its cost is not one whole number; write it as in ?cost=10")]
    Cost,
    /// A property is in the URL and beside it.
    #[error("it has a {0} in its URL and another one beside it; give one")]
    Twice(&'static str),
    /// `egress` is not `cost`.
    #[error("its egress differs from its cost, and links have one price; leave egress out")]
    Egress,
    /// A table of the file is not one of a peer.
    #[error("{0}; a peer has url, cost and token")]
    Table(String),
}

/// The table form. `egress` is known because moq-relay 0.17 knows it; there, too, it must equal the cost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    url: String,
    cost: Option<u64>,
    egress: Option<u64>,
    token: Option<String>,
}

impl Peer {
    /// Reads a URL, with `?cost=` and `?jwt=` in its query.
    ///
    /// # Errors
    /// It is none that can be dialed.
    pub fn parse(text: &str) -> Result<Self, PeerError> {
        let mut url = dialable(text)?;
        url.set_fragment(None);
        let costs: Vec<_> = url.query_pairs().filter(|(key, _)| key == "cost").map(|(_, cost)| cost.parse()).collect();
        let cost = match costs.as_slice() {
            [] => None,
            [Ok(cost)] => Some(*cost),
            [Err(_)] | [_, _, ..] => return Err(PeerError::Cost),
        };
        if cost.is_some() {
            let rest: Vec<_> = url.query_pairs().into_owned().filter(|(key, _)| key != "cost").collect();
            url.set_query(None);
            if !rest.is_empty() {
                url.query_pairs_mut().extend_pairs(rest);
            }
        }
        Ok(Self { url, cost })
    }

    /// Reads the table form, as JSON.
    ///
    /// # Errors
    /// As [`Self::parse`]; or it has an unknown property, or one twice.
    pub fn from_json(json: &str) -> Result<Self, PeerError> {
        let table: Table = serde_json::from_str(json).map_err(|error| {
            // What serde says names the property, then the place in a text that nobody wrote.
            let error = error.to_string();
            PeerError::Table(error.split(" at line").next().unwrap_or_default().replace('`', ""))
        })?;
        let mut peer = Self::parse(&table.url)?;
        if table.cost.or(table.egress).is_some() && peer.cost.is_some() {
            return Err(PeerError::Twice("cost"));
        }
        peer.cost = peer.cost.or(table.cost);
        if table.egress.is_some_and(|egress| egress != peer.cost.unwrap_or(1)) {
            return Err(PeerError::Egress);
        }
        if let Some(token) = table.token.filter(|token| !token.is_empty()) {
            if peer.has_token() {
                return Err(PeerError::Twice("token"));
            }
            peer.url.query_pairs_mut().append_pair("jwt", &token);
        }
        Ok(peer)
    }

    /// What to dial: with `token`, when it has none of its own.
    #[must_use]
    pub fn url(&self, token: Option<&Token>) -> Url {
        let mut url = self.url.clone();
        if let Some(Token(token)) = token.filter(|_| !self.has_token()) {
            url.query_pairs_mut().append_pair("jwt", token);
        }
        url
    }

    /// The price of the link; `None`: 1.
    #[must_use]
    pub fn cost(&self) -> Option<u64> {
        self.cost
    }

    /// Whether that URL names this relay.
    #[must_use]
    pub fn is_at(&self, url: &Url) -> bool {
        same_place(&self.url, url)
    }

    /// Whether both name the same relay.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.is_at(&other.url)
    }

    fn has_token(&self) -> bool {
        self.url.query_pairs().any(|(key, token)| key == "jwt" && !token.is_empty())
    }
}

impl fmt::Display for Peer {
    /// As [`Shown`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(&self.url).fmt(f)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("url", &format_args!("{}", Shown(&self.url)))
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// A URL that can be dialed.
///
/// # Errors
/// It is none, has no host, or another scheme.
pub fn dialable(text: &str) -> Result<Url, PeerError> {
    let url = Url::parse(text).ok().filter(Url::has_host).ok_or(PeerError::Url)?;
    if SCHEMES.contains(&url.scheme()) { Ok(url) } else { Err(PeerError::Scheme(url.scheme().to_owned())) }
}

/// A URL as it is shown: scheme, host and port. The path and the query are where credentials are.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a Url);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.0.host_str().unwrap_or_default();
        write!(f, "{}://{host}:{}", self.0.scheme(), self.0.port().unwrap_or(DEFAULT_PORT))
    }
}

/// The token of `--cluster-token`: presented to peers, and what they are told by.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// `None`: there is nothing but white space.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// Whether it is this one. Takes the same time wherever they differ.
    #[must_use]
    pub fn is(&self, presented: &str) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), presented.as_bytes()).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::{Peer, PeerError, Shown, Token};
    use url::Url;

    #[test]
    fn a_cost_is_taken_out_of_the_url_and_a_token_is_left_in() {
        for (text, url, cost) in [
            ("https://a.test", "https://a.test/", None),
            ("https://a.test/x?cost=7", "https://a.test/x", Some(7)),
            ("moqt://a.test:5/x?jwt=t&cost=0&y=1#z", "moqt://a.test:5/x?jwt=t&y=1", Some(0)),
        ] {
            let peer = Peer::parse(text).expect(text);
            assert_eq!((peer.url(None).as_str(), peer.cost()), (url, cost), "{text}");
        }
    }

    #[test]
    fn what_can_not_be_dialed_is_refused_without_showing_it() {
        for (text, error) in [
            ("relay.test:443", PeerError::Scheme("relay.test".to_owned())),
            ("secret", PeerError::Url),
            ("moqt:secret", PeerError::Url),
            ("tcp://a.test/?jwt=secret", PeerError::Scheme("tcp".to_owned())),
            ("https://a.test/?jwt=secret&cost=-1", PeerError::Cost),
            ("https://a.test/?cost=1&cost=2", PeerError::Cost),
        ] {
            let refused = Peer::parse(text).expect_err(text);
            assert!(!refused.to_string().contains("secret"), "{refused}");
            // `relay.test:443` is a URL without a host to the parser.
            assert!(refused == error || text == "relay.test:443" && refused == PeerError::Url, "{text}: {refused}");
        }
    }

    #[test]
    fn the_table_form_says_the_same_and_nothing_twice() {
        let same =
            |json: &str, text: &str| assert_eq!(Peer::from_json(json).expect(json), Peer::parse(text).expect(text));
        same(r#"{"url": "https://a.test"}"#, "https://a.test");
        same(r#"{"url": "https://a.test", "cost": 3, "egress": 3, "token": "t"}"#, "https://a.test?jwt=t&cost=3");
        same(r#"{"url": "https://a.test", "egress": 1, "token": ""}"#, "https://a.test");
        for (json, part) in [
            (r#"{"url": "https://a.test?cost=1", "cost": 1}"#, "a cost in its URL"),
            (r#"{"url": "https://a.test?jwt=a", "token": "b"}"#, "a token in its URL"),
            (r#"{"url": "https://a.test", "cost": 1, "egress": 2}"#, "egress differs"),
            (r#"{"url": "https://a.test", "price": 1}"#, "unknown field price"),
            (r#"{"cost": 1}"#, "missing field url"),
        ] {
            let refused = Peer::from_json(json).expect_err(json).to_string();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn the_common_token_goes_to_peers_without_their_own() {
        let token = Token::new(" common\n").expect("a token");
        let url = |text: &str| Peer::parse(text).expect(text).url(Some(&token)).to_string();
        assert_eq!(url("https://a.test/x"), "https://a.test/x?jwt=common");
        assert_eq!(url("https://a.test/?jwt=own"), "https://a.test/?jwt=own");
        assert_eq!(url("moqt://a.test?y=1"), "moqt://a.test?y=1&jwt=common");
        assert!(token.is("common") && !token.is("commom") && !token.is("common ") && !token.is(""));
        assert!(Token::new(" \n").is_none());
    }

    #[test]
    fn nothing_shows_a_credential() {
        let peer = Peer::parse("https://user:pw@a.test/secret?jwt=secret").expect("a peer");
        let shown = format!("{peer:?} {} {:?}", Shown(&peer.url(None)), Token::new("secret"));
        assert!(!shown.contains("secret") && !shown.contains("pw"), "{shown}");
        assert!(shown.contains("https://a.test:443"), "{shown}");
        let here: Url = "https://a.test:443/secret/".parse().expect("a URL");
        assert!(peer.is_at(&here));
    }
}
