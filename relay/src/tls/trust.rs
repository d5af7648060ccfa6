//! TLS of the dialing side: who is trusted, and the certificate that is presented.

use super::files::Stamp;
use crate::config::ConnectTls;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Makes the TLS configuration of dials. Its files are read again when they have changed.
pub struct Trust {
    settings: ConnectTls,
    built: Mutex<Built>,
}

struct Built {
    /// Of the files as they were last read, whether or not they were good.
    stamps: Vec<Stamp>,
    config: Arc<rustls::ClientConfig>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Trust {
    /// Reads the files.
    ///
    /// # Errors
    /// One can't be read or used, or the settings contradict each other.
    pub fn load(settings: &ConnectTls) -> Result<Self, moq_tokio::tls::Error> {
        let stamps = Stamp::all(files(settings));
        let built = Mutex::new(Built { stamps, config: build(settings)? });
        Ok(Self { settings: settings.clone(), built })
    }

    /// The configuration for the next dial. Files that have changed and are no good are logged, and those before stay in
    /// use.
    #[must_use]
    pub fn client_config(&self) -> Arc<rustls::ClientConfig> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = Stamp::all(files(&self.settings));
        if built.stamps != stamps {
            built.stamps = stamps;
            match build(&self.settings) {
                Ok(config) => built.config = config,
                Err(error) => tracing::warn!(%error, "TLS files for dials changed: the old ones are used"),
            }
        }
        built.config.clone()
    }

    /// The name to ask for, when it is not the URL's host.
    #[must_use]
    pub fn host_name(&self) -> Option<&str> {
        self.settings.host_name.as_deref()
    }

    /// Whether certificates are checked by their fingerprints, which hold for one host only.
    #[must_use]
    pub fn pins(&self) -> bool {
        !self.settings.fingerprints.is_empty()
    }
}

fn files(settings: &ConnectTls) -> impl Iterator<Item = &PathBuf> {
    settings.roots.iter().chain(settings.identity.iter().flat_map(|pair| [&pair.cert, &pair.key]))
}

/// The library of today's clients knows how these settings go together.
fn build(settings: &ConnectTls) -> Result<Arc<rustls::ClientConfig>, moq_tokio::tls::Error> {
    let mut connect = moq_tokio::tls::Connect::default();
    connect.root.clone_from(&settings.roots);
    connect.system_roots = settings.system_roots;
    connect.fingerprint.clone_from(&settings.fingerprints);
    connect.cert = settings.identity.as_ref().map(|pair| pair.cert.clone());
    connect.key = settings.identity.as_ref().map(|pair| pair.key.clone());
    connect.insecure = Some(settings.insecure);
    let mut config = connect.build()?;
    // A resumed session skips the verification, whose roots may have changed.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}
