//! Where the relay is reached, and what it presents there.

use super::Form::{Numbers, Text, Texts};
use super::Unset::{Value, Words};
use super::{Setting, setting};

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
