//! Settings that moq-relay 0.17 knows, or knew under an older name, and this relay does not have: each is refused by
//! name, because a relay that ran on without them would not be the one its operator asked for.

use super::catalog::{self, Setting};

/// A name that is refused, in each place where it can be given.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Its flags, without the dashes.
    pub(crate) flags: &'static [&'static str],
    /// Its environment variable.
    pub(crate) env: Option<&'static str>,
    /// Its dotted key in the file; a table's name stands for all that is in it.
    pub(crate) key: Option<&'static str>,
    /// Why, and what to do.
    pub(crate) why: Why,
}

/// Why a name is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    /// This relay has no such thing.
    Unsupported(&'static str),
    /// It is called otherwise now.
    Renamed(&'static Setting),
    /// The table is called otherwise now.
    Table(&'static str),
    /// It is gone from moq-relay itself.
    Removed(&'static str),
}

impl Refused {
    /// The message for `name`, the spelling that was used.
    pub(crate) fn message(&self, name: &str) -> String {
        match self.why {
            Why::Unsupported(why) => format!("{name} is not supported by this relay: {why}"),
            Why::Renamed(to) => {
                format!("{name} has been renamed: use --{}, {} or `{}` in the file", to.flag, to.env, to.key)
            }
            Why::Table(to) => format!("{name} has been renamed: use {to}"),
            Why::Removed(why) => format!("{name} has been removed: {why}"),
        }
    }
}

const fn no(flag: &'static [&'static str], env: &'static str, key: &'static str, why: &'static str) -> Refused {
    Refused { flags: flag, env: Some(env), key: Some(key), why: Why::Unsupported(why) }
}

const fn old(flag: &'static [&'static str], env: &'static str, why: Why) -> Refused {
    Refused { flags: flag, env: Some(env), key: None, why }
}

const fn key(key: &'static str, why: Why) -> Refused {
    Refused { flags: &[], env: None, key: Some(key), why }
}

const DIALS: &str = "it dials its cluster only; name each relay with --cluster-connect";
const LOOKUP: &str = "it looks all addresses up before it dials; remove it";
const WEBSOCKET: &str = "it dials over QUIC alone; remove it";
const LIST: &str = "it reads no list of peers; name each relay with --cluster-connect";
const LAN: &str = "it finds no peers by itself; name each relay with --cluster-connect";
const TIER: &str = "it counts all traffic as one; remove it";
const CIDS: &str = "its connection IDs carry the steering between its own processes; remove it, and balance by address";
const HTTP: &str = "it serves no HTTP but that of --internal-listen; remove it, and put an HTTP server beside it";
const STATS: &str = "its statistics are those of the whole node, in one broadcast; remove it";
const IROH: &str = "it speaks no iroh; remove it";
const AUTH_URL: &str = "it asks no auth server; remove it, and say by --auth-public who may do what";
const QLOG: &str = "it writes no qlog; remove it";
const URING: &str = "its workers run on tokio; remove it";
const KEYS: &str = "a relay reads no keys any more; say by --auth-public who may do what";
const INVERTED: &str = "its opposite is --connect-once: false there is true here";
const QUIC: Why = Why::Table("the [quic] table, which is for both directions");

/// Every refused name, in the order of the reference.
pub(crate) static ALL: &[Refused] = &[
    no(&["listen-quic-lb-id"], "MOQ_LISTEN_QUIC_LB_ID", "listen.lb_id", CIDS),
    no(&["listen-quic-lb-nonce"], "MOQ_LISTEN_QUIC_LB_NONCE", "listen.lb_nonce", CIDS),
    key("listen.load_balancer", Why::Unsupported(CIDS)),
    no(&["quic-qlog"], "MOQ_QUIC_QLOG", "quic.qlog", QLOG),
    no(&["connect"], "MOQ_CONNECT", "connect.url", DIALS),
    no(&["connect-resolution-delay"], "MOQ_CONNECT_RESOLUTION_DELAY", "connect.resolution_delay", LOOKUP),
    no(&["connect-websocket-enabled"], "MOQ_CONNECT_WEBSOCKET_ENABLED", "connect.websocket.enabled", WEBSOCKET),
    no(&["connect-websocket-delay"], "MOQ_CONNECT_WEBSOCKET_DELAY", "connect.websocket.delay", WEBSOCKET),
    no(&["cluster-connect-api"], "MOQ_CLUSTER_CONNECT_API", "cluster.connect_api", LIST),
    no(&["cluster-tier"], "MOQ_CLUSTER_TIER", "cluster.tier", TIER),
    no(&["cluster-lan"], "MOQ_CLUSTER_LAN", "cluster.lan.enabled", LAN),
    no(&["cluster-lan-secret"], "MOQ_CLUSTER_LAN_SECRET", "cluster.lan.secret", LAN),
    no(&["cluster-lan-app"], "MOQ_CLUSTER_LAN_APP", "cluster.lan.app", LAN),
    no(&["auth-url"], "MOQ_AUTH_URL", "auth.url", AUTH_URL),
    no(&["web-http-listen"], "MOQ_WEB_HTTP_LISTEN", "web.http.listen", HTTP),
    no(&["web-https-listen"], "MOQ_WEB_HTTPS_LISTEN", "web.https.listen", HTTP),
    no(&["web-https-cert"], "MOQ_WEB_HTTPS_CERT", "web.https.cert", HTTP),
    no(&["web-https-key"], "MOQ_WEB_HTTPS_KEY", "web.https.key", HTTP),
    no(&["web-https-root"], "MOQ_WEB_HTTPS_ROOT", "web.https.root", HTTP),
    no(&["web-ws"], "MOQ_WEB_WS", "web.ws", HTTP),
    no(&["stats-depth"], "MOQ_STATS_DEPTH", "stats.depth", STATS),
    no(&["stats-linger"], "MOQ_STATS_LINGER", "stats.linger", STATS),
    no(&["runtime-io-uring"], "MOQ_RUNTIME_IO_URING", "runtime.io_uring", URING),
    no(&["iroh-enabled"], "MOQ_IROH_ENABLED", "iroh.enabled", IROH),
    no(&["iroh-secret"], "MOQ_IROH_SECRET", "iroh.secret", IROH),
    no(&["iroh-bind-v4"], "MOQ_IROH_BIND_V4", "iroh.bind_v4", IROH),
    no(&["iroh-bind-v6"], "MOQ_IROH_BIND_V6", "iroh.bind_v6", IROH),
    no(&["iroh-disable-relay"], "MOQ_IROH_DISABLE_RELAY", "iroh.disable_relay", IROH),
    // Names that moq-relay itself no longer takes.
    key("server", Why::Table("the [listen] table")),
    key("client", Why::Table("the [connect] table")),
    key("file", Why::Removed("name the file on the command line")),
    key("listen.listen", Why::Renamed(&catalog::LISTEN)),
    key("listen.quic", QUIC),
    old(&["server-bind"], "MOQ_SERVER_BIND", Why::Renamed(&catalog::LISTEN)),
    old(&["server-version"], "MOQ_SERVER_VERSION", Why::Renamed(&catalog::LISTEN_VERSION)),
    old(&["server-preferred-v4"], "MOQ_SERVER_PREFERRED_V4", Why::Renamed(&catalog::PREFERRED_V4)),
    old(&["server-preferred-v6"], "MOQ_SERVER_PREFERRED_V6", Why::Renamed(&catalog::PREFERRED_V6)),
    old(&["server-quic-lb-id"], "MOQ_SERVER_QUIC_LB_ID", Why::Unsupported(CIDS)),
    old(&["server-quic-lb-nonce"], "MOQ_SERVER_QUIC_LB_NONCE", Why::Unsupported(CIDS)),
    old(&["tls-cert", "server-tls-cert"], "MOQ_SERVER_TLS_CERT", Why::Renamed(&catalog::TLS_CERT)),
    old(&["tls-key", "server-tls-key"], "MOQ_SERVER_TLS_KEY", Why::Renamed(&catalog::TLS_KEY)),
    old(&["tls-generate", "server-tls-generate"], "MOQ_SERVER_TLS_GENERATE", Why::Renamed(&catalog::TLS_GENERATE)),
    old(&["server-tls-root"], "MOQ_SERVER_TLS_ROOT", Why::Renamed(&catalog::TLS_ROOT)),
    old(&["server-tcp-bind"], "MOQ_SERVER_TCP_BIND", Why::Renamed(&catalog::TCP_BIND)),
    old(&["server-unix-bind"], "MOQ_SERVER_UNIX_BIND", Why::Renamed(&catalog::UNIX_BIND)),
    old(&["server-unix-allow-uid"], "MOQ_SERVER_UNIX_ALLOW_UID", Why::Renamed(&catalog::UNIX_UID)),
    old(&["server-unix-allow-gid"], "MOQ_SERVER_UNIX_ALLOW_GID", Why::Renamed(&catalog::UNIX_GID)),
    old(&["server-unix-allow-pid"], "MOQ_SERVER_UNIX_ALLOW_PID", Why::Renamed(&catalog::UNIX_PID)),
    old(
        &["server-quic-max-streams", "server-max-streams"],
        "MOQ_SERVER_QUIC_MAX_STREAMS",
        Why::Renamed(&catalog::MAX_STREAMS),
    ),
    old(&["server-quic-gso"], "MOQ_SERVER_QUIC_GSO", Why::Renamed(&catalog::GSO)),
    old(&["server-quic-idle-timeout"], "MOQ_SERVER_QUIC_IDLE_TIMEOUT", Why::Renamed(&catalog::IDLE_TIMEOUT)),
    old(&["server-quic-keep-alive"], "MOQ_SERVER_QUIC_KEEP_ALIVE", Why::Renamed(&catalog::KEEP_ALIVE)),
    old(&["server-quic-mtu-discovery"], "MOQ_SERVER_QUIC_MTU_DISCOVERY", Why::Renamed(&catalog::MTU_DISCOVERY)),
    old(&["server-quic-congestion-control"], "MOQ_SERVER_QUIC_CONGESTION_CONTROL", Why::Renamed(&catalog::CONGESTION)),
    old(&["server-quic-qlog"], "MOQ_SERVER_QUIC_QLOG", Why::Unsupported(QLOG)),
    old(
        &["client-quic-max-streams", "client-max-streams"],
        "MOQ_CLIENT_QUIC_MAX_STREAMS",
        Why::Renamed(&catalog::MAX_STREAMS),
    ),
    old(&["client-quic-gso"], "MOQ_CLIENT_QUIC_GSO", Why::Renamed(&catalog::GSO)),
    old(&["client-quic-idle-timeout"], "MOQ_CLIENT_QUIC_IDLE_TIMEOUT", Why::Renamed(&catalog::IDLE_TIMEOUT)),
    old(&["client-quic-keep-alive"], "MOQ_CLIENT_QUIC_KEEP_ALIVE", Why::Renamed(&catalog::KEEP_ALIVE)),
    old(&["client-quic-mtu-discovery"], "MOQ_CLIENT_QUIC_MTU_DISCOVERY", Why::Renamed(&catalog::MTU_DISCOVERY)),
    old(&["client-quic-congestion-control"], "MOQ_CLIENT_QUIC_CONGESTION_CONTROL", Why::Renamed(&catalog::CONGESTION)),
    old(&["client-quic-qlog"], "MOQ_CLIENT_QUIC_QLOG", Why::Unsupported(QLOG)),
    old(&["client-connect"], "MOQ_CLIENT_CONNECT", Why::Unsupported(DIALS)),
    old(&["client-bind"], "MOQ_CLIENT_BIND", Why::Renamed(&catalog::CONNECT_BIND)),
    old(&["client-connect-timeout"], "MOQ_CLIENT_CONNECT_TIMEOUT", Why::Renamed(&catalog::CONNECT_TIMEOUT)),
    old(&["client-failover-delay"], "MOQ_CLIENT_FAILOVER_DELAY", Why::Renamed(&catalog::CONNECT_RACE)),
    old(&["client-resolution-delay"], "MOQ_CLIENT_RESOLUTION_DELAY", Why::Unsupported(LOOKUP)),
    old(&["client-reconnect"], "MOQ_CLIENT_RECONNECT", Why::Removed(INVERTED)),
    old(&["client-version"], "MOQ_CLIENT_VERSION", Why::Renamed(&catalog::CONNECT_VERSION)),
    old(&["client-tls-root", "tls-root"], "MOQ_CLIENT_TLS_ROOT", Why::Renamed(&catalog::CONNECT_ROOT)),
    old(
        &["client-tls-system-roots", "tls-system-roots"],
        "MOQ_CLIENT_TLS_SYSTEM_ROOTS",
        Why::Renamed(&catalog::CONNECT_SYSTEM_ROOTS),
    ),
    old(
        &["client-tls-fingerprint", "tls-fingerprint"],
        "MOQ_CLIENT_TLS_FINGERPRINT",
        Why::Renamed(&catalog::CONNECT_FINGERPRINT),
    ),
    old(&["client-tls-cert"], "MOQ_CLIENT_TLS_CERT", Why::Renamed(&catalog::CONNECT_CERT)),
    old(&["client-tls-key"], "MOQ_CLIENT_TLS_KEY", Why::Renamed(&catalog::CONNECT_KEY)),
    old(
        &["client-tls-disable-verify", "client-tls-insecure", "tls-disable-verify"],
        "MOQ_CLIENT_TLS_DISABLE_VERIFY",
        Why::Renamed(&catalog::CONNECT_INSECURE),
    ),
    old(&["client-tls-host-name"], "MOQ_CLIENT_TLS_HOST_NAME", Why::Renamed(&catalog::CONNECT_HOST_NAME)),
    old(&["websocket-enabled"], "MOQ_CLIENT_WEBSOCKET_ENABLED", Why::Unsupported(WEBSOCKET)),
    old(&["websocket-delay"], "MOQ_CLIENT_WEBSOCKET_DELAY", Why::Unsupported(WEBSOCKET)),
    key("connect.connect", Why::Unsupported(DIALS)),
    key("connect.failover_delay", Why::Renamed(&catalog::CONNECT_RACE)),
    key("connect.reconnect", Why::Removed(INVERTED)),
    key("connect.tls.disable_verify", Why::Renamed(&catalog::CONNECT_INSECURE)),
    key("connect.quic", QUIC),
    Refused {
        flags: &["cluster-mesh"],
        env: Some("MOQ_CLUSTER_MESH"),
        key: Some("cluster.mesh"),
        why: Why::Removed("no relay gossips any more; name each relay with --cluster-connect"),
    },
    Refused {
        flags: &["cluster-linger"],
        env: Some("MOQ_CLUSTER_LINGER"),
        key: Some("cluster.linger"),
        why: Why::Removed("a broadcast ends with its last publisher"),
    },
    Refused { flags: &["auth-key"], env: Some("MOQ_AUTH_KEY"), key: Some("auth.key"), why: Why::Removed(KEYS) },
    Refused {
        flags: &["auth-key-dir"],
        env: Some("MOQ_AUTH_KEY_DIR"),
        key: Some("auth.key_dir"),
        why: Why::Removed(KEYS),
    },
    Refused { flags: &["auth-api"], env: Some("MOQ_AUTH_API"), key: Some("auth.auth_api"), why: Why::Removed(KEYS) },
    old(&["auth-public-api"], "MOQ_AUTH_PUBLIC_API", Why::Removed(KEYS)),
    Refused {
        flags: &["auth-domain"],
        env: Some("MOQ_AUTH_DOMAIN"),
        key: Some("auth.domains"),
        why: Why::Removed(KEYS),
    },
    Refused {
        flags: &["auth-mtls-tier"],
        env: Some("MOQ_AUTH_MTLS_TIER"),
        key: Some("auth.mtls_tier"),
        why: Why::Removed(KEYS),
    },
    old(&["auth-tls-root"], "MOQ_AUTH_TLS_ROOT", Why::Removed(KEYS)),
    old(&["auth-tls-cert"], "MOQ_AUTH_TLS_CERT", Why::Removed(KEYS)),
    old(&["auth-tls-key"], "MOQ_AUTH_TLS_KEY", Why::Removed(KEYS)),
    old(&["auth-tls-disable-verify"], "MOQ_AUTH_TLS_DISABLE_VERIFY", Why::Removed(KEYS)),
    key("auth.tls", Why::Removed(KEYS)),
];

/// The entry that refuses the flag `name` (without dashes).
pub(crate) fn flag(name: &str) -> Option<&'static Refused> {
    ALL.iter().find(|refused| refused.flags.contains(&name))
}

/// The entry that refuses the dotted key `name` of the file.
pub(crate) fn by_key(name: &str) -> Option<&'static Refused> {
    ALL.iter().find(|refused| refused.key == Some(name))
}
