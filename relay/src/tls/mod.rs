//! TLS of the QUIC listener: certificates, their fingerprints, client authorities, session tickets.
//!
//! One [`Tls`] serves all workers: what it swaps in at a reload, every worker's next handshake uses.

mod error;
mod files;
mod generated;
mod served;
#[cfg(test)]
mod tests;
mod tickets;
mod trust;

pub use error::Error;
pub use trust::Trust;

use crate::config;
use files::Stamp;
use generated::Generated;
use moq_net::Versions;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use served::{Certificates, Clients};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// The ALPN of HTTP/3, under which WebTransport runs (RFC 9114 §3.1).
pub const H3: &[u8] = b"h3";

/// The name under which the supervisor keeps the generated certificate and key.
pub const KEEP: &str = "tls-generated";

/// A generated certificate and its key, as bytes that mean something to this program only.
pub type Keep = Zeroizing<Vec<u8>>;

/// How often [`Tls::check`] is to be called. A few `stat` calls tell whether a file has changed, with symbolic links
/// followed, on every file system; a watch would miss a swapped link or a network file system.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Makes aws-lc-rs the crypto provider of the process. Call it first; a second call does nothing.
pub fn install_provider() {
    // An error means that a provider is installed already.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

/// The application protocols offered: one for each version over raw QUIC, then HTTP/3 for WebTransport.
#[must_use]
pub fn alpns(versions: &Versions) -> Vec<Vec<u8>> {
    let raw = versions.alpns().into_iter().map(|name| name.as_bytes().to_vec());
    raw.chain([H3.to_vec()]).collect()
}

/// The certificates of this process and the rustls configuration around them.
pub struct Tls {
    settings: config::Tls,
    provider: Arc<CryptoProvider>,
    certificates: Arc<Certificates>,
    /// Present when client authorities are configured.
    clients: Option<Arc<Clients>>,
    config: Arc<rustls::ServerConfig>,
    state: Mutex<State>,
}

/// What a reload changes.
struct State {
    /// Of the files as they were last read, whether or not they were good.
    stamps: Vec<Stamp>,
    /// Of the file pairs.
    pairs: Vec<Arc<CertifiedKey>>,
    generated: Option<Generated>,
}

/// What [`Tls::load`] gives.
#[derive(Debug)]
pub struct Loaded {
    /// To serve with.
    pub tls: Tls,
    /// To hand to the supervisor (`keep`, under [`KEEP`]) so that the next generation serves the same certificate;
    /// `None`: nothing new to keep.
    pub keep: Option<Keep>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("settings", &self.settings).finish_non_exhaustive()
    }
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
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let stamps = Stamp::all(paths(settings));
        let pairs = pairs(settings, &provider)?;
        let (generated, keep) = generated(settings, &provider, kept, now)?;
        let served = all(&pairs, generated.as_ref(), &provider)?;
        let certificates = Arc::new(Certificates::new(served));
        let clients = verifier(settings, &provider)?.map(|verifier| Arc::new(Clients::new(verifier)));

        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(clients.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(certificates.clone());
        config.alpn_protocols = alpns(versions);
        // No state in this process: a ticket carries it all. 0-RTT stays off (max_early_data_size is 0 by default):
        // without shared state a replay can't be told.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if clients.is_some() {
            tracing::warn!("client certificates are verified, and grant nothing beyond --auth-public");
            // A resumed session skips the certificate, whose authority may have been taken away since.
            config.send_tls13_tickets = 0;
        } else {
            config.ticketer = Arc::new(tickets::Tickets::new(tickets));
        }
        let state = Mutex::new(State { stamps, pairs, generated });
        let settings = settings.clone();
        Ok(Loaded { tls: Self { settings, provider, certificates, clients, config: Arc::new(config), state }, keep })
    }

    /// The configuration for every worker.
    #[must_use]
    pub fn server_config(&self) -> Arc<rustls::ServerConfig> {
        self.config.clone()
    }

    /// SHA-256 of each leaf certificate, in lower-case hexadecimal: those of files in their order, then the generated
    /// one. A pinning client wants the first.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<String> {
        self.certificates.fingerprints()
    }

    /// Reads the files again and serves what they hold from the next handshake on. For `reload` and SIGHUP.
    ///
    /// # Errors
    /// As [`Self::load`]; what was served is served on.
    pub fn reload(&self) -> Result<(), Error> {
        self.reload_locked(&mut self.lock())
    }

    fn reload_locked(&self, state: &mut State) -> Result<(), Error> {
        // Stamped before reading: a change during the read is then seen as a change by the next check.
        state.stamps = Stamp::all(paths(&self.settings));
        let pairs = pairs(&self.settings, &self.provider)?;
        let verifier = verifier(&self.settings, &self.provider)?;
        let served = all(&pairs, state.generated.as_ref(), &self.provider)?;
        state.pairs = pairs;
        self.certificates.replace(served);
        if let (Some(clients), Some(verifier)) = (&self.clients, verifier) {
            clients.replace(verifier);
        }
        Ok(())
    }

    /// Call it every [`CHECK_INTERVAL`]: reloads when a file has changed (and logs either outcome), renews a generated
    /// certificate that is near its end. `Some`: hand this to the supervisor as [`Loaded::keep`].
    pub fn check(&self, now: SystemTime) -> Option<Keep> {
        let mut state = self.lock();
        if state.stamps != Stamp::all(paths(&self.settings)) {
            match self.reload_locked(&mut state) {
                Ok(()) => tracing::info!(fingerprints = ?self.fingerprints(), "certificates changed: reloaded"),
                Err(error) => tracing::warn!(%error, "certificates changed: serving the old ones"),
            }
        }
        if state.generated.as_ref().is_some_and(|generated| generated.is_due(now)) {
            match self.renew(&mut state, now) {
                Ok(keep) => {
                    tracing::info!(fingerprints = ?self.fingerprints(), "generated certificate renewed");
                    return Some(keep);
                }
                Err(error) => tracing::warn!(%error, "generated certificate not renewed: serving the old one"),
            }
        }
        None
    }

    fn renew(&self, state: &mut State, now: SystemTime) -> Result<Keep, Error> {
        let fresh = Generated::new(&self.settings.generate, now)?;
        self.certificates.replace(all(&state.pairs, Some(&fresh), &self.provider)?);
        let keep = fresh.to_kept();
        state.generated = Some(fresh);
        Ok(keep)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every file that the settings name.
fn paths(settings: &config::Tls) -> impl Iterator<Item = &PathBuf> {
    settings.pairs.iter().flat_map(|pair| [&pair.cert, &pair.key]).chain(&settings.roots)
}

fn pairs(settings: &config::Tls, provider: &CryptoProvider) -> Result<Vec<Arc<CertifiedKey>>, Error> {
    settings.pairs.iter().map(|files| files::pair(provider, files).map(Arc::new)).collect()
}

fn all(
    pairs: &[Arc<CertifiedKey>],
    generated: Option<&Generated>,
    provider: &CryptoProvider,
) -> Result<Vec<Arc<CertifiedKey>>, Error> {
    let generated = generated.map(|generated| generated.certified(provider)).transpose()?;
    Ok(pairs.iter().cloned().chain(generated).collect())
}

/// The generated certificate, when one is asked for, and what is new to keep.
fn generated(
    settings: &config::Tls,
    provider: &CryptoProvider,
    kept: Option<&[u8]>,
    now: SystemTime,
) -> Result<(Option<Generated>, Option<Keep>), Error> {
    if settings.generate.is_empty() {
        return Ok((None, None));
    }
    let usable = |generated: &Generated| generated.certified(provider).is_ok();
    let kept = kept.and_then(|bytes| Generated::from_kept(bytes, &settings.generate, now)).filter(usable);
    if kept.is_some() {
        return Ok((kept, None));
    }
    let fresh = Generated::new(&settings.generate, now)?;
    let keep = fresh.to_kept();
    Ok((Some(fresh), Some(keep)))
}

fn verifier(
    settings: &config::Tls,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn rustls::server::danger::ClientCertVerifier>>, Error> {
    if settings.roots.is_empty() {
        return Ok(None);
    }
    let roots = files::roots(&settings.roots)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    Ok(Some(verifier.allow_unauthenticated().build()?))
}
