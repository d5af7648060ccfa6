//! What every handshake reads, and a reload replaces: certificates by SNI, and the verifier of client certificates.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use sha2::{Digest, Sha256};
use std::sync::{Arc, PoisonError, RwLock};

/// A value that is replaced as a whole: whoever reads gets the old one or the new one.
#[derive(Debug)]
struct Swap<T: ?Sized>(RwLock<Arc<T>>);

impl<T: ?Sized> Swap<T> {
    fn new(value: Arc<T>) -> Self {
        Self(RwLock::new(value))
    }

    fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, value: Arc<T>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// The certificates that are served.
#[derive(Debug)]
pub(super) struct Certificates(Swap<[Arc<CertifiedKey>]>);

impl Certificates {
    pub(super) fn new(certificates: Vec<Arc<CertifiedKey>>) -> Self {
        Self(Swap::new(certificates.into()))
    }

    /// Serves these from the next handshake on.
    pub(super) fn replace(&self, certificates: Vec<Arc<CertifiedKey>>) {
        self.0.set(certificates.into());
    }

    /// SHA-256 of each leaf, in lower-case hexadecimal, in order.
    pub(super) fn fingerprints(&self) -> Vec<String> {
        self.0.get().iter().filter_map(|pair| pair.cert.first()).map(|leaf| hex::encode(Sha256::digest(leaf))).collect()
    }

    /// The first that is valid for `name`, else the first.
    pub(super) fn select(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let all = self.0.get();
        let name = name.and_then(|name| ServerName::try_from(name).ok());
        let named = name.and_then(|name| all.iter().find(|pair| covers(pair, &name)));
        named.or_else(|| all.first()).cloned()
    }
}

fn covers(pair: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let leaf = pair.cert.first().and_then(|leaf| ParsedCertificate::try_from(leaf).ok());
    leaf.is_some_and(|leaf| verify_server_name(&leaf, name).is_ok())
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.select(hello.server_name())
    }
}

/// Verifies client certificates with the authorities of the moment.
#[derive(Debug)]
pub(super) struct Clients(Swap<dyn ClientCertVerifier>);

impl Clients {
    pub(super) fn new(verifier: Arc<dyn ClientCertVerifier>) -> Self {
        Self(Swap::new(verifier))
    }

    /// Uses this from the next handshake on.
    pub(super) fn replace(&self, verifier: Arc<dyn ClientCertVerifier>) {
        self.0.set(verifier);
    }
}

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        self.0.get().offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.get().client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A borrow can't outlive the verifier that a reload replaces. Without hints a client offers what it has.
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.get().verify_client_cert(leaf, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.get().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.get().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.get().supported_verify_schemes()
    }
}
