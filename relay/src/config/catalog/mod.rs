//! The settings this relay has: names, shapes, defaults, meanings. The command line, the help, the file reader, the
//! checks and the tables of `docs/relay.md` all come from here. The names are those of moq-relay 0.17.

mod dial;
mod general;
mod listen;
mod quic;
mod service;
mod stats;

pub(crate) use dial::*;
pub(crate) use general::*;
pub(crate) use listen::*;
pub(crate) use quic::*;
pub(crate) use service::*;
pub(crate) use stats::*;

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
    /// Several relays: URLs, as texts are given; in the file also tables, which are passed on as JSON.
    Peers,
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

/// Every setting, in the order of the help and the reference.
pub(crate) static ALL: [&Setting; 63] = [
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
    &CONNECT_BIND,
    &CONNECT_RACE,
    &CONNECT_TIMEOUT,
    &CONNECT_VERSION,
    &CONNECT_ONCE,
    &CONNECT_ROOT,
    &CONNECT_SYSTEM_ROOTS,
    &CONNECT_FINGERPRINT,
    &CONNECT_CERT,
    &CONNECT_KEY,
    &CONNECT_INSECURE,
    &CONNECT_HOST_NAME,
    &BACKOFF_INITIAL,
    &BACKOFF_MULTIPLIER,
    &BACKOFF_MAX,
    &BACKOFF_TIMEOUT,
    &GOAWAY_REDIRECT,
    &GOAWAY_RESTART,
    &GOAWAY_HANDOVER,
    &CLUSTER_ID,
    &CLUSTER_MAX_HOPS,
    &CLUSTER_CONNECT,
    &CLUSTER_NODE,
    &CLUSTER_TOKEN,
    &AUTH_PUBLIC,
    &AUTH_SUBSCRIBE,
    &AUTH_PUBLISH,
    &CACHE_CAPACITY,
    &CACHE_HEADROOM,
    &CACHE_DURATION,
    &WORKERS,
    &PIN,
    &INTERNAL_LISTEN,
    &STATS_ENABLED,
    &STATS_PREFIX,
    &STATS_INTERVAL,
    &STATS_NODE,
    &LOG_LEVEL,
];
