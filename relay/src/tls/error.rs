//! Why TLS can't be set up.

use std::io;
use std::path::PathBuf;

/// Why TLS can't be set up. Displays as one line that names the file and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file can't be opened or read.
    #[error("{}: can't read the {what} ({source}); check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not PEM.
    #[error("{}: the {what} doesn't parse ({source}); give a PEM file", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file has no such PEM section.
    #[error("{}: there is no {what} in this file; give a PEM file that has one", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// The leaf is not an X.509 certificate.
    #[error("{}: the certificate doesn't parse ({source}); give an X.509 certificate in PEM, leaf first", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// The key is of a kind that can't sign here.
    #[error("{}: the private key can't be used ({source}); give an RSA, ECDSA or Ed25519 key", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// Certificate and key are not a pair.
    #[error("{}: the private key doesn't match the certificate in {}; give the key that the certificate was issued for",
        key.display(), cert.display())]
    Mismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// A certificate can't be the root of a chain.
    #[error("{}: a certificate in this file can't be an authority ({source}); give CA certificates", path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// The verifier of client certificates can't be made.
    #[error("client certificates can't be verified: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// A certificate for these hosts can't be made.
    #[error("no certificate can be generated for {hosts} ({source}); give host names or IP addresses")]
    Generate {
        /// The hosts, joined by commas.
        hosts: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// rustls refused.
    #[error("TLS can't be set up: {0}")]
    Rustls(#[from] rustls::Error),
}
