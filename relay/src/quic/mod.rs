//! Turns the settings into quinn's configuration.

use crate::config;
use std::sync::Arc;

/// quinn's configuration for one listener: transport, crypto, preferred addresses. It is cheap to clone for each worker
/// (the token key is set by the member endpoint).
///
/// # Errors
/// The TLS configuration lacks what QUIC needs.
pub fn server_config(
    tls: Arc<rustls::ServerConfig>,
    quic: &config::Quic,
    listener: &config::QuicListener,
) -> Result<quinn::ServerConfig, quinn::crypto::rustls::NoInitialCipherSuite> {
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport(quic)));
    config.preferred_address_v4(listener.preferred_v4).preferred_address_v6(listener.preferred_v6);
    Ok(config)
}

/// The transport settings alone.
#[must_use]
pub fn transport(quic: &config::Quic) -> quinn::TransportConfig {
    let _ = quic;
    quinn::TransportConfig::default()
}
