//! The settings this relay has: names, shapes, defaults, meanings. The command line, the help, the file reader, the
//! checks and the tables of `docs/relay.md` all come from here. The names are those of moq-relay 0.17.

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its heading in the help and the reference: its table in the file, in brackets, or [`TOP`].
    pub(crate) section: &'static str,
    /// Its dotted key in the file.
    pub(crate) key: &'static str,
    /// Its flag, without the dashes.
    pub(crate) flag: &'static str,
    /// Its environment variable.
    pub(crate) env: &'static str,
    /// What a value looks like.
    pub(crate) form: Form,
    /// The name of the value in the help.
    pub(crate) value: &'static str,
    /// What applies when it is not set.
    pub(crate) default: Unset,
    /// What it means: one or two sentences with units.
    pub(crate) help: &'static str,
}

/// The shape of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text; a string in the file.
    Text,
    /// A number; an integer in the file.
    Number,
    /// `true` or `false`; the flag needs a value.
    Bool,
    /// `true` or `false`; the flag alone means `true`, and a value is joined by `=`.
    Switch,
    /// Several texts: the flag repeated, commas, or an array in the file.
    Texts,
    /// Several numbers.
    Numbers,
}

/// What applies when a setting is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unset {
    /// This value, read as if it had been given.
    Value(&'static str),
    /// What these words say.
    Words(&'static str),
}

/// The heading of what belongs to no table of the file.
pub(crate) const TOP: &str = "General";

const fn setting(
    section: &'static str,
    (key, flag, env): (&'static str, &'static str, &'static str),
    (form, value): (Form, &'static str),
    default: Unset,
    help: &'static str,
) -> Setting {
    Setting { section, key, flag, env, form, value, default, help }
}

use Form::{Bool, Number, Numbers, Switch, Text, Texts};
use Unset::{Value, Words};

pub(crate) static DRAIN_TIMEOUT: Setting = setting(
    TOP,
    ("drain_timeout", "drain-timeout", "MOQ_DRAIN_TIMEOUT"),
    (Text, "DURATION"),
    Value("10s"),
    "How long sessions may stay after a stop, from the first GOAWAY to the last forced close. 0 closes them at once, \
     without a GOAWAY. A supervisor's own drain timeout goes before it at an upgrade.",
);

pub(crate) static DRAIN_SPREAD: Setting = setting(
    TOP,
    ("drain_spread", "drain-spread", "MOQ_DRAIN_SPREAD"),
    (Text, "DURATION"),
    Words("as long as 1 000 GOAWAYs a second take"),
    "Spread the GOAWAYs of a drain over this long, at most 80% of the drain timeout. Not a setting of moq-relay 0.17, which \
     tells every session at once.",
);

pub(crate) static LISTEN: Setting = setting(
    "[listen]",
    ("listen.bind", "listen", "MOQ_LISTEN"),
    (Text, "ADDR:PORT"),
    Value("[::]:443"),
    "Serve QUIC (UDP) here: an IP address or a host name, whose first address is taken, and a port. [::] also serves \
     IPv4. Left unset beside a TCP or unix listener, there is no QUIC.",
);
pub(crate) static LISTEN_VERSION: Setting = setting(
    "[listen]",
    ("listen.version", "listen-version", "MOQ_LISTEN_VERSION"),
    (Texts, "VERSION"),
    Words("every version but moq-lite-07-wip"),
    "Speak only these protocol versions: moq-lite-01 to moq-lite-06, moq-lite-07-wip, moq-transport-14 to \
     moq-transport-22. The order is the preference.",
);
pub(crate) static LISTEN_TIMEOUT: Setting = setting(
    "[listen]",
    ("listen.timeout", "listen-timeout", "MOQ_LISTEN_TIMEOUT"),
    (Text, "DURATION"),
    Value("10s"),
    "The longest a connection may take from its first packet to the end of its MoQ SETUP. 0: for ever.",
);
pub(crate) static TLS_CERT: Setting = setting(
    "[listen]",
    ("listen.tls.cert", "listen-tls-cert", "MOQ_LISTEN_TLS_CERT"),
    (Texts, "FILE"),
    Words("none"),
    "Serve the certificate chain in this PEM file, leaf first. Several: chosen by the client's SNI, else the first. Read \
     again when the file changes.",
);
pub(crate) static TLS_KEY: Setting = setting(
    "[listen]",
    ("listen.tls.key", "listen-tls-key", "MOQ_LISTEN_TLS_KEY"),
    (Texts, "FILE"),
    Words("none"),
    "The private key, in PEM, of the certificate at the same place in --listen-tls-cert.",
);
pub(crate) static TLS_GENERATE: Setting = setting(
    "[listen]",
    ("listen.tls.generate", "listen-tls-generate", "MOQ_LISTEN_TLS_GENERATE"),
    (Texts, "HOST"),
    Words("none"),
    "Serve a self-signed certificate for these host names or addresses (ECDSA P-256, valid for two weeks and renewed in \
     time). A supervisor keeps it over upgrades. Clients must pin its fingerprint, which is logged at start.",
);
pub(crate) static TLS_ROOT: Setting = setting(
    "[listen]",
    ("listen.tls.root", "listen-tls-root", "MOQ_LISTEN_TLS_ROOT"),
    (Texts, "FILE"),
    Words("none"),
    "Ask clients for a certificate, and refuse one that does not chain to the authorities in this PEM file; a client \
     without any is served all the same. It grants nothing beyond --auth-public. Turns TLS resumption off.",
);
pub(crate) static PREFERRED_V4: Setting = setting(
    "[listen]",
    ("listen.preferred_v4", "listen-preferred-v4", "MOQ_LISTEN_PREFERRED_V4"),
    (Text, "ADDR:PORT"),
    Words("none"),
    "Ask clients to move to this IPv4 address after the handshake (QUIC preferred_address).",
);
pub(crate) static PREFERRED_V6: Setting = setting(
    "[listen]",
    ("listen.preferred_v6", "listen-preferred-v6", "MOQ_LISTEN_PREFERRED_V6"),
    (Text, "ADDR:PORT"),
    Words("none"),
    "Ask clients to move to this IPv6 address after the handshake (QUIC preferred_address).",
);
pub(crate) static TCP_BIND: Setting = setting(
    "[listen]",
    ("listen.tcp.bind", "listen-tcp-bind", "MOQ_LISTEN_TCP_BIND"),
    (Text, "ADDR:PORT"),
    Words("off"),
    "Serve qmux over plain TCP here. Nothing is encrypted and no one is authenticated: for loopback and private networks.",
);
pub(crate) static UNIX_BIND: Setting = setting(
    "[listen]",
    ("listen.unix.bind", "listen-unix-bind", "MOQ_LISTEN_UNIX_BIND"),
    (Text, "PATH"),
    Words("off"),
    "Serve qmux over a unix socket at this path (mode 0666: guard its directory, or use the allow lists).",
);
pub(crate) static UNIX_UID: Setting = setting(
    "[listen]",
    ("listen.unix.allow.uid", "listen-unix-allow-uid", "MOQ_LISTEN_UNIX_ALLOW_UID"),
    (Numbers, "UID"),
    Words("any"),
    "Serve only these users on the unix socket.",
);
pub(crate) static UNIX_GID: Setting = setting(
    "[listen]",
    ("listen.unix.allow.gid", "listen-unix-allow-gid", "MOQ_LISTEN_UNIX_ALLOW_GID"),
    (Numbers, "GID"),
    Words("any"),
    "Serve only processes of these groups on the unix socket.",
);
pub(crate) static UNIX_PID: Setting = setting(
    "[listen]",
    ("listen.unix.allow.pid", "listen-unix-allow-pid", "MOQ_LISTEN_UNIX_ALLOW_PID"),
    (Numbers, "PID"),
    Words("any"),
    "Serve only these processes on the unix socket.",
);

pub(crate) static MAX_STREAMS: Setting = setting(
    "[quic]",
    ("quic.max_streams", "quic-max-streams", "MOQ_QUIC_MAX_STREAMS"),
    (Number, "COUNT"),
    Value("10000"),
    "The most streams a peer may have open at once, of each direction. MoQ opens one per group.",
);
pub(crate) static GSO: Setting = setting(
    "[quic]",
    ("quic.gso", "quic-gso", "MOQ_QUIC_GSO"),
    (Switch, "BOOL"),
    Value("true"),
    "Batch sends by UDP segmentation offload. Turn it off where a NIC or a middlebox mangles what it makes.",
);
pub(crate) static IDLE_TIMEOUT: Setting = setting(
    "[quic]",
    ("quic.idle_timeout", "quic-idle-timeout", "MOQ_QUIC_IDLE_TIMEOUT"),
    (Text, "DURATION"),
    Value("10s"),
    "Drop a connection after this silence; the smaller of both ends' counts. 0: never.",
);
pub(crate) static KEEP_ALIVE: Setting = setting(
    "[quic]",
    ("quic.keep_alive", "quic-keep-alive", "MOQ_QUIC_KEEP_ALIVE"),
    (Text, "DURATION"),
    Value("3s"),
    "Ping a silent peer this often. 0: never.",
);
pub(crate) static MTU_DISCOVERY: Setting = setting(
    "[quic]",
    ("quic.mtu_discovery", "quic-mtu-discovery", "MOQ_QUIC_MTU_DISCOVERY"),
    (Switch, "BOOL"),
    Value("false"),
    "Probe for a larger path MTU than 1 200 bytes.",
);
pub(crate) static CONGESTION: Setting = setting(
    "[quic]",
    ("quic.congestion_control", "quic-congestion-control", "MOQ_QUIC_CONGESTION_CONTROL"),
    (Text, "KIND"),
    Value("delay"),
    "How the send rate is found: delay (BBR) or loss (CUBIC).",
);
pub(crate) static RECEIVE_WINDOW: Setting = setting(
    "[quic]",
    ("quic.receive_window", "quic-receive-window", "MOQ_QUIC_RECEIVE_WINDOW"),
    (Number, "BYTES"),
    Value("67108864"),
    "Bytes a peer may have in flight over all streams of a connection. It bounds throughput to this much per round trip.",
);
pub(crate) static STREAM_RECEIVE_WINDOW: Setting = setting(
    "[quic]",
    ("quic.stream_receive_window", "quic-stream-receive-window", "MOQ_QUIC_STREAM_RECEIVE_WINDOW"),
    (Number, "BYTES"),
    Words("1250000, quinn's own"),
    "Bytes a peer may have in flight on one stream.",
);
pub(crate) static SEND_WINDOW: Setting = setting(
    "[quic]",
    ("quic.send_window", "quic-send-window", "MOQ_QUIC_SEND_WINDOW"),
    (Number, "BYTES"),
    Words("10000000, quinn's own"),
    "Bytes sent and not yet acknowledged that are buffered per connection, whatever the peer allows.",
);

pub(crate) static AUTH_PUBLIC: Setting = setting(
    "[auth]",
    ("auth.public", "auth-public", "MOQ_AUTH_PUBLIC"),
    (Texts, "PATTERN"),
    Words("none"),
    "Anyone may publish and subscribe to broadcasts that match: `anon/**` is everything below anon, `**` everything. At \
     least one of the three --auth-public settings is required.",
);
pub(crate) static AUTH_SUBSCRIBE: Setting = setting(
    "[auth]",
    ("auth.public_subscribe", "auth-public-subscribe", "MOQ_AUTH_PUBLIC_SUBSCRIBE"),
    (Texts, "PATTERN"),
    Words("none"),
    "Anyone may subscribe to broadcasts that match.",
);
pub(crate) static AUTH_PUBLISH: Setting = setting(
    "[auth]",
    ("auth.public_publish", "auth-public-publish", "MOQ_AUTH_PUBLIC_PUBLISH"),
    (Texts, "PATTERN"),
    Words("none"),
    "Anyone may publish broadcasts that match.",
);

pub(crate) static CACHE_CAPACITY: Setting = setting(
    "[cache]",
    ("cache.capacity", "cache-capacity", "MOQ_CACHE_CAPACITY"),
    (Text, "SIZE"),
    Words("unbounded"),
    "Bytes of cached groups that the cache converges to: 8GiB, 512MB, or a part of the memory this process can use, as \
     75%. The latest group of each track is kept whatever the size.",
);
pub(crate) static CACHE_HEADROOM: Setting = setting(
    "[cache]",
    ("cache.headroom", "cache-headroom", "MOQ_CACHE_HEADROOM"),
    (Text, "SIZE"),
    Words("off"),
    "Shrink the cache so that this much memory stays available, as 2GiB or 10%. Looked at every 5 s.",
);
pub(crate) static CACHE_DURATION: Setting = setting(
    "[cache]",
    ("cache.duration", "cache-duration", "MOQ_CACHE_DURATION"),
    (Text, "DURATION"),
    Words("30s, and each track's own retention"),
    "Keep a group that is not a track's latest, and that no one reads, for at most this long; it also caps what each track asks for.",
);

pub(crate) static WORKERS: Setting = setting(
    "[runtime]",
    ("runtime.workers", "runtime-workers", "MOQ_RUNTIME_WORKERS"),
    (Number, "COUNT"),
    Words("one per core, at most 253"),
    "Workers that serve QUIC: each has one thread, one socket and one endpoint. 0: the default.",
);
pub(crate) static PIN: Setting = setting(
    "[runtime]",
    ("runtime.pin", "runtime-pin", "MOQ_RUNTIME_PIN"),
    (Bool, "BOOL"),
    Value("true"),
    "Pin each worker to a core.",
);

pub(crate) static LOG_LEVEL: Setting = setting(
    "[log]",
    ("log.level", "log-level", "MOQ_LOG_LEVEL"),
    (Text, "LEVEL"),
    Value("info"),
    "The least severe level that is logged, to standard error: error, warn, info, debug or trace. RUST_LOG overrides it, \
     target by target.",
);

/// Every setting, in the order of the help and the reference.
pub(crate) static ALL: [&Setting; 34] = [
    &DRAIN_TIMEOUT,
    &DRAIN_SPREAD,
    &LISTEN,
    &LISTEN_VERSION,
    &LISTEN_TIMEOUT,
    &TLS_CERT,
    &TLS_KEY,
    &TLS_GENERATE,
    &TLS_ROOT,
    &PREFERRED_V4,
    &PREFERRED_V6,
    &TCP_BIND,
    &UNIX_BIND,
    &UNIX_UID,
    &UNIX_GID,
    &UNIX_PID,
    &MAX_STREAMS,
    &GSO,
    &IDLE_TIMEOUT,
    &KEEP_ALIVE,
    &MTU_DISCOVERY,
    &CONGESTION,
    &RECEIVE_WINDOW,
    &STREAM_RECEIVE_WINDOW,
    &SEND_WINDOW,
    &AUTH_PUBLIC,
    &AUTH_SUBSCRIBE,
    &AUTH_PUBLISH,
    &CACHE_CAPACITY,
    &CACHE_HEADROOM,
    &CACHE_DURATION,
    &WORKERS,
    &PIN,
    &LOG_LEVEL,
];
