//! PEM files: certificate chains with their keys, authorities, and whether a file has changed.

use super::Error;
use crate::config::PairFiles;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

const CERTIFICATE: &str = "certificate";
const KEY: &str = "private key";

/// Loads a chain and its key, and sees that they belong together.
pub(super) fn pair(provider: &CryptoProvider, files: &PairFiles) -> Result<CertifiedKey, Error> {
    let chain = certificates(&files.cert)?;
    let key = key(&files.key)?;
    let signer =
        provider.key_provider.load_private_key(key).map_err(|source| Error::Key { path: files.key.clone(), source })?;
    let pair = CertifiedKey::new(chain, signer);
    if let Some(leaf) = pair.cert.first() {
        ParsedCertificate::try_from(leaf).map_err(|source| Error::Certificate { path: files.cert.clone(), source })?;
    }
    match pair.keys_match() {
        // Unknown: a signer that does not tell its public key, which aws-lc-rs never makes.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(pair),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(Error::Mismatch { cert: files.cert.clone(), key: files.key.clone() })
        }
        Err(other) => Err(Error::Rustls(other)),
    }
}

/// Loads the authorities that client certificates may chain to.
pub(super) fn roots(paths: &[PathBuf]) -> Result<Arc<RootCertStore>, Error> {
    let mut store = RootCertStore::empty();
    for path in paths {
        for certificate in certificates(path)? {
            store.add(certificate).map_err(|source| Error::Root { path: path.clone(), source })?;
        }
    }
    Ok(Arc::new(store))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = read(path, CERTIFICATE)?;
    let chain: Vec<_> = rustls_pemfile::certs(&mut bytes.as_slice())
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Pem { path: path.to_owned(), what: CERTIFICATE, source })?;
    if chain.is_empty() {
        return Err(Error::Nothing { path: path.to_owned(), what: CERTIFICATE });
    }
    Ok(chain)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let bytes = Zeroizing::new(read(path, KEY)?);
    rustls_pemfile::private_key(&mut bytes.as_slice())
        .map_err(|source| Error::Pem { path: path.to_owned(), what: KEY, source })?
        .ok_or_else(|| Error::Nothing { path: path.to_owned(), what: KEY })
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), what, source })
}

/// What tells one content of a path from another without reading it. It follows symbolic links, so a swapped link (as
/// Kubernetes and certbot do it) counts as a change. `None`: there is no such file now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<(u64, u64, u64, i64, i64)>);

impl Stamp {
    /// Of each of these files now.
    pub(super) fn all<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<Self> {
        paths.into_iter().map(|path| Self::of(path)).collect()
    }

    fn of(path: &Path) -> Self {
        let metadata = std::fs::metadata(path).ok();
        Self(metadata.map(|file| (file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec())))
    }
}
