//! The cluster: which node this is.

use super::Form::Number;
use super::Unset::{Value, Words};
use super::{Setting, setting};

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
