//! TLS for clients that accept any certificate and remember which one they saw.

use anyhow::Context as _;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a client waits for a sign of life before it takes its server for dead.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for a client that keeps silent. The echo server's own is not shorter.
pub const PATIENT: Duration = Duration::from_secs(30);

/// The SHA-256 fingerprint of the certificate that was presented last, in hex.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Mutex<Option<String>>>);

impl Seen {
    /// The fingerprint, if a handshake got that far.
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A client configuration that offers `alpns` (in that order) and notes the server's certificate in `seen`.
///
/// # Errors
/// The crypto library does not do TLS 1.3.
pub fn client(alpns: &[&str], seen: &Seen) -> anyhow::Result<quinn::ClientConfig> {
    with_provider(rustls::crypto::aws_lc_rs::default_provider(), alpns, seen)
}

/// The same with a post-quantum key share, whose ClientHello does not fit into one datagram.
///
/// # Errors
/// As [`client`].
pub fn post_quantum_client(alpns: &[&str], seen: &Seen) -> anyhow::Result<quinn::ClientConfig> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups = vec![rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768];
    with_provider(provider, alpns, seen)
}

/// [`client`], except that it sends nothing of its own accord and takes its server for dead after [`PATIENT`] only: what it
/// learns earlier, somebody has told it unasked.
///
/// # Errors
/// As [`client`].
pub fn silent_client(alpns: &[&str], seen: &Seen) -> anyhow::Result<quinn::ClientConfig> {
    let mut config = client(alpns, seen)?;
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(PATIENT.try_into()?)).keep_alive_interval(None);
    config.transport_config(Arc::new(transport));
    Ok(config)
}

fn with_provider(provider: CryptoProvider, alpns: &[&str], seen: &Seen) -> anyhow::Result<quinn::ClientConfig> {
    let provider = Arc::new(provider);
    let verifier = AcceptAny { provider: provider.clone(), seen: seen.clone() };
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .context("TLS 1.3")?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    tls.alpn_protocols = alpns.iter().map(|alpn| alpn.as_bytes().to_vec()).collect();
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).context("a QUIC cipher")?));
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(IDLE_TIMEOUT.try_into()?)).keep_alive_interval(Some(Duration::from_secs(3)));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

#[derive(Debug)]
struct AcceptAny {
    provider: Arc<CryptoProvider>,
    seen: Seen,
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let hash = web_transport_quinn::crypto::sha256(&self.provider, end_entity);
        *self.seen.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(hex::encode(hash));
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
