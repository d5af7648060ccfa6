//! Settings of what operators are told.

use super::Form::{Number, Switch, Text};
use super::Unset::{Value, Words};
use super::{Setting, setting};

pub(crate) static INTERNAL_LISTEN: Setting = setting(
    "[internal]",
    ("internal.listen", "internal-listen", "MOQ_INTERNAL_LISTEN"),
    (Text, "IP:PORT"),
    Words("off"),
    "Serve /metrics, /health, /nodes and /sessions there, over plain HTTP and to anybody: keep it on loopback or a private network. The active \
     generation answers, for the node.",
);
pub(crate) static STATS_ENABLED: Setting = setting(
    "[stats]",
    ("stats.enabled", "stats-enabled", "MOQ_STATS_ENABLED"),
    (Switch, "BOOL"),
    Value("false"),
    "Publish the counters of the node as a broadcast.",
);
pub(crate) static STATS_PREFIX: Setting = setting(
    "[stats]",
    ("stats.prefix", "stats-prefix", "MOQ_STATS_PREFIX"),
    (Text, "PATH"),
    Value(".stats"),
    "The path that they are published below: PATH/node, then the name of the node. What is below PATH is not counted itself.",
);
pub(crate) static STATS_INTERVAL: Setting = setting(
    "[stats]",
    ("stats.interval", "stats-interval", "MOQ_STATS_INTERVAL"),
    (Number, "SECONDS"),
    Value("1"),
    "How often they are published, in whole seconds.",
);
pub(crate) static STATS_NODE: Setting = setting(
    "[stats]",
    ("stats.node", "stats-node", "MOQ_STATS_NODE"),
    (Text, "NAME"),
    Words("none"),
    "The name of the node, a path, in that of the broadcast. Relays that see each other's broadcasts need different ones.",
);
