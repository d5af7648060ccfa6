//! Who may do what, what is kept, and how the work is laid out.

use super::Form::{Bool, Number, Text, Texts};
use super::Unset::{Value, Words};
use super::{Setting, setting};

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
