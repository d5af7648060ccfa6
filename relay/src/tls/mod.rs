//! TLS of the QUIC listener: certificates, their fingerprints, client authorities, session tickets.
//!
//! One [`Tls`] serves all workers: what it swaps in at a reload, every worker's next handshake uses.

use crate::config;
use moq_net::Versions;
use std::sync::Arc;
use std::time::SystemTime;

/// The ALPN of HTTP/3, under which WebTransport runs (RFC 9114 §3.1).
pub const H3: &[u8] = b"h3";

/// The certificates of this process and the rustls configuration around them.
#[derive(Debug)]
pub struct Tls {
    config: Arc<rustls::ServerConfig>,
}

/// What [`Tls::load`] gives.
#[derive(Debug)]
pub struct Loaded {
    /// To serve with.
    pub tls: Tls,
    /// To hand to the supervisor (`keep`, under [`KEEP`]) so that the next generation serves the same certificate;
    /// `None`: nothing new to keep.
    pub keep: Option<Vec<u8>>,
}

/// The name under which the supervisor keeps the generated certificate and key.
pub const KEEP: &str = "tls-generated";

/// Why TLS can't be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// rustls refused.
    #[error("TLS can't be set up: {0}")]
    Rustls(#[from] rustls::Error),
}

/// Makes aws-lc-rs the crypto provider of the process. Call it first; a second call does nothing.
pub fn install_provider() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

impl Tls {
    /// Loads or generates the certificates.
    ///
    /// `kept` is what the supervisor kept under [`KEEP`], `tickets` the key that all generations derive their session
    /// ticket keys from.
    ///
    /// # Errors
    /// A file can't be read or holds no usable certificate or key.
    pub fn load(
        settings: &config::Tls,
        versions: &Versions,
        tickets: &[u8; 32],
        kept: Option<&[u8]>,
        now: SystemTime,
    ) -> Result<Loaded, Error> {
        let _ = (settings, versions, tickets, kept, now);
        Err(Error::Rustls(rustls::Error::General("not yet".into())))
    }

    /// The configuration for every worker.
    #[must_use]
    pub fn server_config(&self) -> Arc<rustls::ServerConfig> {
        self.config.clone()
    }

    /// SHA-256 of each leaf certificate, in lower-case hexadecimal; the one a pinning client wants comes first.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads the files again and serves what they hold from the next handshake on. For `reload` and SIGHUP.
    ///
    /// # Errors
    /// As [`Self::load`]; what was served is served on.
    pub fn reload(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Call it every [`CHECK_INTERVAL`]: reloads when a file has changed (and logs either outcome), renews a generated
    /// certificate that is near its end. `Some`: hand this to the supervisor as [`Loaded::keep`].
    pub fn check(&self, now: SystemTime) -> Option<Vec<u8>> {
        let _ = now;
        None
    }
}

/// How often [`Tls::check`] is to be called.
pub const CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
