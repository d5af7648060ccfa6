//! Other relays: which are dialed, how, and what is done about their GOAWAYs.

use super::Form::{Number, Peers, Switch, Text, Texts};
use super::Unset::{Value, Words};
use super::{Setting, setting};

pub(crate) static CONNECT_BIND: Setting = setting(
    "[connect]",
    ("connect.bind", "connect-bind", "MOQ_CONNECT_BIND"),
    (Text, "ADDR:PORT"),
    Words("[::]:0, or 0.0.0.0:0 without IPv6"),
    "Dial from this UDP address. Its port must be 0 when there are peers: two generations can't share a fixed one.",
);
pub(crate) static CONNECT_RACE: Setting = setting(
    "[connect]",
    ("connect.race", "connect-race", "MOQ_CONNECT_RACE"),
    (Text, "DURATION"),
    Value("250ms"),
    "How long a dial to one address of a peer's name is alone before the next address is tried beside it (RFC 8305 §5).",
);
pub(crate) static CONNECT_TIMEOUT: Setting = setting(
    "[connect]",
    ("connect.timeout", "connect-timeout", "MOQ_CONNECT_TIMEOUT"),
    (Text, "DURATION"),
    Value("30s"),
    "The longest a dial may take, from the look-up of the name to the end of the MoQ SETUP. 0: for ever.",
);
pub(crate) static CONNECT_VERSION: Setting = setting(
    "[connect]",
    ("connect.version", "connect-version", "MOQ_CONNECT_VERSION"),
    (Texts, "VERSION"),
    Words("every version but moq-lite-07-wip"),
    "Offer only these protocol versions to peers, named as in --listen-version. The order is the preference.",
);
pub(crate) static CONNECT_ONCE: Setting = setting(
    "[connect]",
    ("connect.once", "connect-once", "MOQ_CONNECT_ONCE"),
    (Switch, "BOOL"),
    Value("false"),
    "Dial each peer once, and leave it for good at its first GOAWAY, close or failure. moq-relay 0.17 dials its peers \
     again all the same.",
);
pub(crate) static CONNECT_ROOT: Setting = setting(
    "[connect]",
    ("connect.tls.root", "connect-tls-root", "MOQ_CONNECT_TLS_ROOT"),
    (Texts, "FILE"),
    Words("none"),
    "Trust the authorities in this PEM file, instead of the system's. Read again when the file has changed.",
);
pub(crate) static CONNECT_SYSTEM_ROOTS: Setting = setting(
    "[connect]",
    ("connect.tls.system_roots", "connect-tls-system-roots", "MOQ_CONNECT_TLS_SYSTEM_ROOTS"),
    (Switch, "BOOL"),
    Words("true, but false beside --connect-tls-root"),
    "Trust the system's authorities.",
);
pub(crate) static CONNECT_FINGERPRINT: Setting = setting(
    "[connect]",
    ("connect.tls.fingerprint", "connect-tls-fingerprint", "MOQ_CONNECT_TLS_FINGERPRINT"),
    (Texts, "SHA256"),
    Words("none"),
    "Trust only a certificate with this SHA-256 fingerprint, in hexadecimal, whoever issued it; a relay logs its own at \
     start.",
);
pub(crate) static CONNECT_CERT: Setting = setting(
    "[connect]",
    ("connect.tls.cert", "connect-tls-cert", "MOQ_CONNECT_TLS_CERT"),
    (Text, "FILE"),
    Words("none"),
    "Present the certificate chain in this PEM file to peers. Read again when the file has changed.",
);
pub(crate) static CONNECT_KEY: Setting = setting(
    "[connect]",
    ("connect.tls.key", "connect-tls-key", "MOQ_CONNECT_TLS_KEY"),
    (Text, "FILE"),
    Words("none"),
    "The private key, in PEM, of --connect-tls-cert.",
);
pub(crate) static CONNECT_INSECURE: Setting = setting(
    "[connect]",
    ("connect.tls.insecure", "connect-tls-insecure", "MOQ_CONNECT_TLS_INSECURE"),
    (Switch, "BOOL"),
    Value("false"),
    "Trust any certificate: whoever is in between can read and change everything.",
);
pub(crate) static CONNECT_HOST_NAME: Setting = setting(
    "[connect]",
    ("connect.tls.host_name", "connect-tls-host-name", "MOQ_CONNECT_TLS_HOST_NAME"),
    (Text, "HOST"),
    Words("the host of the URL"),
    "Ask for, and verify, a certificate of this name.",
);

pub(crate) static BACKOFF_INITIAL: Setting = setting(
    "[connect.backoff]",
    ("connect.backoff.initial", "backoff-initial", "MOQ_BACKOFF_INITIAL"),
    (Text, "DURATION"),
    Value("1s"),
    "The first pause after a failed dial, jittered down to a half. A session that lives as long is healthy. At least 10ms.",
);
pub(crate) static BACKOFF_MULTIPLIER: Setting = setting(
    "[connect.backoff]",
    ("connect.backoff.multiplier", "backoff-multiplier", "MOQ_BACKOFF_MULTIPLIER"),
    (Number, "FACTOR"),
    Value("2"),
    "What each further pause is multiplied by.",
);
pub(crate) static BACKOFF_MAX: Setting = setting(
    "[connect.backoff]",
    ("connect.backoff.max", "backoff-max", "MOQ_BACKOFF_MAX"),
    (Text, "DURATION"),
    Value("5s"),
    "The longest pause.",
);
pub(crate) static BACKOFF_TIMEOUT: Setting = setting(
    "[connect.backoff]",
    ("connect.backoff.timeout", "backoff-timeout", "MOQ_BACKOFF_TIMEOUT"),
    (Text, "DURATION"),
    Value("10s"),
    "How long dials may fail, or redirects lead in a circle, before that is logged as an error and the configured URL is \
     dialed anew, after a rest of 1 s that doubles up to 30 s. 0: for ever.",
);

pub(crate) static GOAWAY_REDIRECT: Setting = setting(
    "[connect.goaway]",
    ("connect.goaway.redirect", "goaway-redirect", "MOQ_GOAWAY_REDIRECT"),
    (Text, "POLICY"),
    Value("same-host"),
    "Which URIs in a peer's GOAWAY are followed: same-host, to another port or scheme; follow, to another host as well; \
     ignore, none.",
);
pub(crate) static GOAWAY_RESTART: Setting = setting(
    "[connect.goaway]",
    ("connect.goaway.restart", "goaway-restart", "MOQ_GOAWAY_RESTART"),
    (Text, "POLICY"),
    Value("handoff"),
    "What a GOAWAY that names no other place is answered with: redial, a dial at once; wait, none until the peer closes; \
     handoff, a dial at once, and patience when that was told to go before it was healthy. Not a setting of moq-relay \
     0.17, which waits.",
);
pub(crate) static GOAWAY_HANDOVER: Setting = setting(
    "[connect.goaway]",
    ("connect.goaway.handover", "goaway-handover", "MOQ_GOAWAY_HANDOVER"),
    (Text, "DURATION"),
    Value("10s"),
    "How long a session that was told to go stays beside its replacement.",
);

pub(crate) static CLUSTER_ID: Setting = setting(
    "[cluster]",
    ("cluster.id", "cluster-id", "MOQ_CLUSTER_ID"),
    (Number, "ID"),
    Words("a new random one for each process"),
    "This node's number, from 1 to 2^62 - 1, in the hop chains by which routes are compared and loops are found. Under a \
     supervisor it is the base from which each generation derives one of its own, since two that are alive at once are \
     two hops.",
);
pub(crate) static CLUSTER_MAX_HOPS: Setting = setting(
    "[cluster]",
    ("cluster.max_hops", "cluster-max-hops", "MOQ_CLUSTER_MAX_HOPS"),
    (Number, "COUNT"),
    Value("32"),
    "The longest hop chain of a route that is accepted or passed on, from 1 to 32.",
);
pub(crate) static CLUSTER_CONNECT: Setting = setting(
    "[cluster]",
    ("cluster.connect", "cluster-connect", "MOQ_CLUSTER_CONNECT"),
    (Peers, "URL"),
    Words("none"),
    "Dial this relay and share every broadcast with it: https://HOST/PATH (WebTransport) or moqt://HOST/PATH (raw QUIC). \
     ?cost=N prices the link (1 without it; not sent as part of the URL), ?jwt=TOKEN is its credential. In the file also \
     as a table of url, cost and token.",
);
pub(crate) static CLUSTER_NODE: Setting = setting(
    "[cluster]",
    ("cluster.node", "cluster-node", "MOQ_CLUSTER_NODE"),
    (Text, "URL"),
    Words("none"),
    "This node's own URL: it is left out of --cluster-connect, so that all nodes can have the same list.",
);
pub(crate) static CLUSTER_TOKEN: Setting = setting(
    "[cluster]",
    ("cluster.token", "cluster-token", "MOQ_CLUSTER_TOKEN"),
    (Text, "FILE"),
    Words("none"),
    "Present the token in this file to each peer whose URL has none of its own. Who presents it here is a peer: it may \
     publish and subscribe to everything, sees hidden broadcasts, and is told its own URL when this relay drains.",
);
