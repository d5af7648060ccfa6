//! Where a GOAWAY sends us: its URI against where we are and what the settings allow.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use url::{Host, Url};

/// Which URIs are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// To another port or scheme of the same host.
    SameHost,
    /// To any host as well: the peer may then name whatever this process can reach.
    Follow,
    /// None: a redirect counts as a restart.
    Ignore,
}

/// What a GOAWAY asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Direction<P> {
    /// The peer restarts where it is.
    Restart,
    /// Go there.
    Elsewhere(P),
    /// It names a place that we don't go to.
    Refused(Refused),
}

/// Why a URI is not followed. It never shows the URI, which carries credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is not a URL with a host.
    #[error("its URI is not a URL")]
    Malformed,
    /// This relay dials https, moqt and moql: others are less, or need what it does not have.
    #[error("its URI has a scheme that is not dialed: https, moqt and moql are")]
    Scheme,
    /// A local address, from a peer that is not local.
    #[error("its URI names a local address")]
    Local,
    /// Another host under `same-host`.
    #[error("its URI names another host, and --goaway-redirect is same-host")]
    Host,
    /// Another host under a pinned certificate, which can only be the first one's.
    #[error("its URI names another host than the one with the pinned certificate")]
    Pinned,
}

impl<P> fmt::Display for Direction<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restart => f.write_str("dial again"),
            Self::Elsewhere(_) => f.write_str("go elsewhere"),
            Self::Refused(why) => write!(f, "go where we don't: {why}"),
        }
    }
}

impl Redirect {
    /// Reads the URI of a GOAWAY. `here` is where the session that brought it was dialed; `pinned`: its certificate was
    /// checked by its fingerprint.
    #[must_use]
    pub fn direction(self, uri: &str, here: &Url, pinned: bool) -> Direction<Url> {
        if uri.is_empty() {
            return Direction::Restart;
        }
        let Some(to) = Url::parse(uri).ok().filter(Url::has_host) else {
            return Direction::Refused(Refused::Malformed);
        };
        if self == Self::Ignore || same_place(&to, here) {
            return Direction::Restart;
        }
        match self.refusal(&to, here, pinned) {
            Some(refused) => Direction::Refused(refused),
            None => Direction::Elsewhere(to),
        }
    }

    fn refusal(self, to: &Url, here: &Url, pinned: bool) -> Option<Refused> {
        let same_host = to.host_str() == here.host_str();
        if !SCHEMES.contains(&to.scheme()) {
            Some(Refused::Scheme)
        } else if is_local(to) && !is_local(here) {
            Some(Refused::Local)
        } else if pinned && !same_host {
            Some(Refused::Pinned)
        } else if self == Self::SameHost && !same_host {
            Some(Refused::Host)
        } else {
            None
        }
    }
}

/// What is dialed: WebTransport, and MoQ directly on QUIC. All are encrypted.
pub const SCHEMES: [&str; 3] = ["https", "moqt", "moql"];

/// The port of a URL that names none, for every scheme of [`SCHEMES`].
pub const DEFAULT_PORT: u16 = 443;

/// Whether two URLs name one place. The query is credentials and prices, and names nothing.
#[must_use]
pub fn same_place(one: &Url, other: &Url) -> bool {
    let port = |url: &Url| url.port().unwrap_or(DEFAULT_PORT);
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && port(one) == port(other)
        && path(one) == path(other)
}

/// Whether a URL says that it names something that only this machine or network reaches. What a name resolves to is not
/// looked at: `same-host` is the default because of that.
fn is_local(url: &Url) -> bool {
    let name = match url.host() {
        Some(Host::Ipv4(ip)) => return is_local_v4(ip),
        Some(Host::Ipv6(ip)) => return is_local_ip(IpAddr::V6(ip)),
        // The `url` crate parses addresses for the schemes that it knows, and moqt is none of them.
        Some(Host::Domain(name)) => name,
        None => return true,
    };
    match name.parse() {
        Ok(ip) => is_local_ip(ip),
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    }
}

fn is_local_ip(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_local_v4(ip),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => is_local_v4(ip),
            None => ip.is_loopback() || ip.is_unspecified() || ip.is_unique_local() || ip.is_unicast_link_local(),
        },
    }
}

fn is_local_v4(ip: Ipv4Addr) -> bool {
    ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::{Direction, Redirect, Refused};
    use crate::reconnect::Place as _;
    use url::Url;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    const HERE: &str = "https://a.test/live?jwt=secret";

    #[test]
    fn a_uri_that_names_where_we_are_is_a_restart() {
        for uri in ["", HERE, "https://a.test/live", "https://a.test:443/live/?jwt=other", "https://A.test/live"] {
            for policy in [Redirect::SameHost, Redirect::Follow, Redirect::Ignore] {
                assert_eq!(policy.direction(uri, &url(HERE), false), Direction::Restart, "{uri}");
            }
        }
        let raw = url("moqt://a.test");
        assert_eq!(Redirect::Follow.direction("moqt://a.test:443/", &raw, false), Direction::Restart);
    }

    #[test]
    fn two_urls_are_one_place_whatever_credentials_they_bring() {
        assert!(url(HERE).is(&url("https://a.test:443/live/?jwt=other")));
        for other in ["https://a.test/other", "https://b.test/live", "https://a.test:444/live", "moqt://a.test/live"] {
            assert!(!url(HERE).is(&url(other)), "{other}");
        }
    }

    #[test]
    fn each_policy_follows_what_it_says() {
        let to = |uri: &str| Direction::Elsewhere(url(uri));
        let refused = Direction::Refused;
        for (uri, same_host, follow) in [
            ("https://a.test:444/live", to("https://a.test:444/live"), to("https://a.test:444/live")),
            ("https://a.test/other", to("https://a.test/other"), to("https://a.test/other")),
            ("moqt://a.test/live", to("moqt://a.test/live"), to("moqt://a.test/live")),
            ("https://b.test/live", refused(Refused::Host), to("https://b.test/live")),
            ("https://127.0.0.1/live", refused(Refused::Local), refused(Refused::Local)),
            ("moqt://127.0.0.1/live", refused(Refused::Local), refused(Refused::Local)),
            ("moqt://[::ffff:10.0.0.1]/live", refused(Refused::Local), refused(Refused::Local)),
            ("https://[fe80::1]/", refused(Refused::Local), refused(Refused::Local)),
            ("https://x.localhost/", refused(Refused::Local), refused(Refused::Local)),
            ("http://a.test/live", refused(Refused::Scheme), refused(Refused::Scheme)),
            ("tcp://a.test/live", refused(Refused::Scheme), refused(Refused::Scheme)),
            ("unix:/run/socket", refused(Refused::Malformed), refused(Refused::Malformed)),
            ("not a URL", refused(Refused::Malformed), refused(Refused::Malformed)),
        ] {
            assert_eq!(Redirect::SameHost.direction(uri, &url(HERE), false), same_host, "{uri}");
            assert_eq!(Redirect::Follow.direction(uri, &url(HERE), false), follow, "{uri}");
        }
        assert_eq!(Redirect::Ignore.direction("https://b.test/", &url(HERE), false), Direction::Restart);
        assert_eq!(
            Redirect::Ignore.direction("not a URL", &url(HERE), false),
            Direction::Refused(Refused::Malformed),
            "the peer is confused: better said than ignored"
        );
    }

    #[test]
    fn a_pin_holds_us_at_its_host_and_a_local_peer_may_name_local_ones() {
        let pinned = Redirect::Follow.direction("https://b.test/", &url(HERE), true);
        assert_eq!(pinned, Direction::Refused(Refused::Pinned));
        let local = Redirect::Follow.direction("https://127.0.0.2:5/", &url("https://127.0.0.1:4/"), false);
        assert_eq!(local, Direction::Elsewhere(url("https://127.0.0.2:5/")));
    }
}
