//! QUIC transport tuning, of both directions.

use super::Form::{Number, Switch, Text};
use super::Unset::{Value, Words};
use super::{Setting, setting};

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
