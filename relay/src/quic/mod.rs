//! Turns the settings into quinn's configuration.

use crate::config::{self, CongestionControl};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn::{IdleTimeout, TransportConfig, VarInt};
use std::sync::Arc;

/// quinn's configuration for one listener: transport, crypto, preferred addresses. It is cheap to clone for each worker
/// (the token key is set by the member endpoint).
///
/// # Errors
/// The TLS configuration lacks the cipher suite of Initial packets (RFC 9001 §5.2).
pub fn server_config(
    tls: Arc<rustls::ServerConfig>,
    quic: &config::Quic,
    listener: &config::QuicListener,
) -> Result<quinn::ServerConfig, NoInitialCipherSuite> {
    let crypto = QuicServerConfig::try_from(tls)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport(quic)));
    config.preferred_address_v4(listener.preferred_v4).preferred_address_v6(listener.preferred_v6);
    Ok(config)
}

/// The transport settings alone.
#[must_use]
pub fn transport(quic: &config::Quic) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let streams = varint(quic.max_streams);
    transport
        .max_concurrent_bidi_streams(streams)
        .max_concurrent_uni_streams(streams)
        .max_idle_timeout(
            quic.idle_timeout
                .map(|timeout| IdleTimeout::from(varint(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)))),
        )
        .keep_alive_interval(quic.keep_alive)
        .enable_segmentation_offload(quic.gso)
        .receive_window(varint(quic.receive_window));
    if !quic.mtu_discovery {
        transport.mtu_discovery_config(None);
    }
    if let Some(window) = quic.stream_receive_window {
        transport.stream_receive_window(varint(window));
    }
    if let Some(window) = quic.send_window {
        transport.send_window(window);
    }
    match quic.congestion_control {
        CongestionControl::Loss => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
        CongestionControl::Delay => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
    };
    transport
}

/// The settings are checked to fit; a value from elsewhere that doesn't means "as much as there is".
fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn settings() -> config::Quic {
        config::Quic {
            max_streams: 12_345,
            gso: false,
            idle_timeout: Some(Duration::from_secs(7)),
            keep_alive: Some(Duration::from_secs(2)),
            mtu_discovery: false,
            congestion_control: CongestionControl::Loss,
            receive_window: 1_111,
            stream_receive_window: Some(222),
            send_window: Some(333),
        }
    }

    /// quinn offers no other way to read a transport configuration back.
    #[test]
    fn every_setting_reaches_quinn() {
        let shown = format!("{:?}", transport(&settings()));
        for part in [
            "max_concurrent_bidi_streams: 12345",
            "max_concurrent_uni_streams: 12345",
            "max_idle_timeout: Some(7000)",
            "keep_alive_interval: Some(2s)",
            "mtu_discovery_config: None",
            "receive_window: 1111",
            "stream_receive_window: 222",
            "send_window: 333",
            "enable_segmentation_offload: false",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }

    #[test]
    fn what_is_off_is_off() {
        let quic = config::Quic { idle_timeout: None, keep_alive: None, mtu_discovery: true, ..settings() };
        let shown = format!("{:?}", transport(&quic));
        for part in ["max_idle_timeout: None", "keep_alive_interval: None", "mtu_discovery_config: Some"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }
}
