//! MoQ clients over each transport that the relay serves.

use crate::process::PATIENCE;
use moq_net::{Version, origin};
use moq_tokio::transport::Session as Polled;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::timeout;
use url::Url;
use web_transport_quinn::proto::ConnectRequest;

/// How a client reaches the relay.
#[derive(Clone, Debug)]
pub(crate) enum Via<'a> {
    /// WebTransport, with this path (and query) in its URL.
    WebTransport(SocketAddr, &'a str),
    /// MoQ directly on QUIC, with this path in its SETUP.
    Quic(SocketAddr, &'a str),
    /// qmux over TCP.
    Tcp(SocketAddr),
    /// qmux over a unix socket.
    Unix(&'a Path),
}

/// An open session. It closes with its last handle.
pub(crate) struct Client {
    pub(crate) session: moq_net::Session,
    /// What it publishes, and what the relay announces to it.
    pub(crate) origin: origin::Producer,
    _endpoint: Option<quinn::Endpoint>,
}

impl Client {
    /// Connects with one version. The session both publishes and subscribes.
    pub(crate) async fn connect(via: Via<'_>, version: Version) -> anyhow::Result<Self> {
        timeout(PATIENCE, Self::connect_patiently(via, version)).await?
    }

    async fn connect_patiently(via: Via<'_>, version: Version) -> anyhow::Result<Self> {
        let (origin, driver) = origin::Producer::new(origin::Config::default());
        tokio::spawn(moq_net::time::run(driver));
        let client = moq_net::Client::new().with_versions(version.into()).with_origin(origin.clone());
        let mut endpoint = None;
        let session = match via {
            Via::WebTransport(address, path) => {
                let connection = quic(address, web_transport_quinn::ALPN, &mut endpoint).await?;
                let url = Url::parse(&format!("https://localhost:{}{path}", address.port()))?;
                let request = ConnectRequest::new(url).with_protocols([version.alpn().to_owned()]);
                let transport = web_transport_quinn::Session::connect(connection, request).await?;
                let (session, driver) = client.connect(Instant::now(), transport).await?;
                tokio::spawn(moq_net::time::run(driver));
                session
            }
            Via::Quic(address, path) => {
                let connection = quic(address, version.alpn(), &mut endpoint).await?;
                let client = client.with_path(path);
                let transport = web_transport_quinn::Session::raw(connection);
                let (session, driver) = client.connect(Instant::now(), transport).await?;
                tokio::spawn(moq_net::time::run(driver));
                session
            }
            Via::Tcp(address) => {
                let config = qmux::tcp::Config::new(qmux::Version::QMux01).protocols([version.alpn()]);
                let transport = Polled::new(config.connect(address).await?);
                let (session, driver) = client.connect(Instant::now(), transport).await?;
                tokio::spawn(moq_net::time::run(driver));
                session
            }
            Via::Unix(path) => {
                let config = qmux::uds::Config::new(qmux::Version::QMux01).protocols([version.alpn()]);
                let transport = Polled::new(config.connect(path).await?);
                let (session, driver) = client.connect(Instant::now(), transport).await?;
                tokio::spawn(moq_net::time::run(driver));
                session
            }
        };
        Ok(Self { session, origin, _endpoint: endpoint })
    }

    /// What ended it.
    pub(crate) async fn closed(&self) -> moq_net::Error {
        timeout(PATIENCE, self.session.closed()).await.expect("it ends")
    }

    /// Waits for the relay's GOAWAY; false: it ended without one.
    pub(crate) async fn told(&self) -> bool {
        timeout(PATIENCE, self.session.draining().recv()).await.expect("told or ended").is_some()
    }
}

/// A QUIC connection that offers one ALPN and takes any certificate.
pub(crate) async fn quic(
    address: SocketAddr,
    alpn: &str,
    kept: &mut Option<quinn::Endpoint>,
) -> anyhow::Result<quinn::Connection> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls)?;
    let endpoint = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let config = quinn::ClientConfig::new(Arc::new(tls));
    let connection = endpoint.connect_with(config, address, "localhost")?.await?;
    *kept = Some(endpoint);
    Ok(connection)
}

/// Trusts whatever the relay generated.
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &rustls::pki_types::CertificateDer<'_>,
        _intermediates: &[rustls::pki_types::CertificateDer<'_>],
        _server_name: &rustls::pki_types::ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
