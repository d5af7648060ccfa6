//! Settings of the process as a whole.

use super::Form::Text;
use super::Unset::{Value, Words};
use super::{Setting, TOP, setting};

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
pub(crate) static LOG_LEVEL: Setting = setting(
    "[log]",
    ("log.level", "log-level", "MOQ_LOG_LEVEL"),
    (Text, "LEVEL"),
    Value("info"),
    "The least severe level that is logged, to standard error: error, warn, info, debug or trace. RUST_LOG overrides it, \
     target by target.",
);
