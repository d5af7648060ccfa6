//! The self-signed certificate of `--listen-tls-generate`, which outlives the process that made it.
//!
//! Its validity obeys what browsers demand of a certificate pinned by `serverCertificateHashes`: ECDSA on P-256, at most
//! two weeks (W3C WebTransport, "custom certificate requirements").

use super::Error;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::{Zeroize, Zeroizing};

/// Clocks of clients may be this far behind ours.
const BACKDATED: Duration = Duration::from_secs(3_600);

/// How long a certificate is good for from its making; with [`BACKDATED`], an hour less than two weeks.
const VALID: Duration = Duration::from_secs(14 * 86_400 - 7_200);

/// A certificate with less left than this is replaced: clients that fetched its fingerprint long ago still get to use it.
const RENEW_BEFORE: Duration = Duration::from_secs(2 * 86_400);

/// A certificate, its key, and what they were made for.
pub(super) struct Generated {
    hosts: Vec<String>,
    /// End of validity, in seconds since 1970.
    not_after: u64,
    certificate: CertificateDer<'static>,
    key: Zeroizing<Vec<u8>>,
}

/// What the supervisor keeps: [`Generated`] as JSON, its byte strings in hexadecimal.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    hosts: Vec<String>,
    not_after: u64,
    certificate: String,
    key: String,
}

const VERSION: u32 = 1;

impl Drop for Kept {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Generated {
    /// Makes one for `hosts`.
    pub(super) fn new(hosts: &[String], now: SystemTime) -> Result<Self, Error> {
        let failed = |source| Error::Generate { hosts: hosts.join(", "), source };
        let seconds = since_epoch(now);
        let not_after = seconds + VALID.as_secs();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let mut params = CertificateParams::new(hosts).map_err(failed)?;
        params.not_before = epoch + Duration::from_secs(seconds.saturating_sub(BACKDATED.as_secs()));
        params.not_after = epoch + Duration::from_secs(not_after);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "moq-relay");
        let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let certificate = params.self_signed(&pair).map_err(failed)?;
        Ok(Self {
            hosts: hosts.to_vec(),
            not_after,
            certificate: certificate.der().clone(),
            key: Zeroizing::new(pair.serialize_der()),
        })
    }

    /// Takes up what an earlier process kept, when it is for the same hosts and has long enough left.
    pub(super) fn from_kept(bytes: &[u8], hosts: &[String], now: SystemTime) -> Option<Self> {
        let kept: Kept = serde_json::from_slice(bytes).ok().filter(|kept: &Kept| kept.version == VERSION)?;
        let generated = Self {
            hosts: kept.hosts.clone(),
            not_after: kept.not_after,
            certificate: hex::decode(&kept.certificate).ok()?.into(),
            key: Zeroizing::new(hex::decode(&kept.key).ok()?),
        };
        (generated.is_for(hosts) && !generated.is_due(now)).then_some(generated)
    }

    /// For the supervisor to keep.
    pub(super) fn to_kept(&self) -> Zeroizing<Vec<u8>> {
        let kept = Kept {
            version: VERSION,
            hosts: self.hosts.clone(),
            not_after: self.not_after,
            certificate: hex::encode(&self.certificate),
            key: hex::encode(&*self.key),
        };
        Zeroizing::new(serde_json::to_vec(&kept).unwrap_or_default())
    }

    /// Whether it should be replaced.
    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        since_epoch(now) + RENEW_BEFORE.as_secs() >= self.not_after
    }

    fn is_for(&self, hosts: &[String]) -> bool {
        let sorted = |hosts: &[String]| {
            let mut hosts = hosts.to_vec();
            hosts.sort_unstable();
            hosts
        };
        sorted(&self.hosts) == sorted(hosts)
    }

    /// For rustls to serve.
    pub(super) fn certified(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.to_vec()));
        let signer = provider.key_provider.load_private_key(key)?;
        let certified = CertifiedKey::new(vec![self.certificate.clone()], signer);
        certified.keys_match()?;
        Ok(Arc::new(certified))
    }
}

fn since_epoch(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_kept_certificate_is_taken_up_until_two_days_before_its_end() {
        let names = hosts(&["localhost", "127.0.0.1"]);
        let made = Generated::new(&names, at(NOW)).unwrap();
        let kept = made.to_kept();
        let end = NOW + VALID.as_secs();
        for (now, taken) in [(NOW, true), (end - 172_801, true), (end - 172_800, false), (end + 1, false)] {
            let again = Generated::from_kept(&kept, &names, at(now));
            assert_eq!(again.is_some(), taken, "at {now}");
            assert!(again.is_none_or(|again| again.certificate == made.certificate && again.key == made.key));
        }
    }

    #[test]
    fn the_order_of_hosts_does_not_matter_and_their_set_does() {
        let kept = Generated::new(&hosts(&["a.test", "b.test"]), at(NOW)).unwrap().to_kept();
        assert!(Generated::from_kept(&kept, &hosts(&["b.test", "a.test"]), at(NOW)).is_some());
        assert!(Generated::from_kept(&kept, &hosts(&["a.test"]), at(NOW)).is_none());
        assert!(Generated::from_kept(&kept, &hosts(&["a.test", "b.test", "c.test"]), at(NOW)).is_none());
    }

    #[test]
    fn what_is_no_kept_certificate_is_not_taken_up() {
        let names = hosts(&["localhost"]);
        let other = br#"{"version":2,"hosts":["localhost"],"not_after":9999999999,"certificate":"","key":""}"#;
        for bytes in [&b""[..], b"garbage", b"{}", other] {
            assert!(Generated::from_kept(bytes, &names, at(NOW)).is_none());
        }
    }

    /// Browsers refuse a pinned certificate that is valid for more than two weeks.
    #[test]
    fn validity_is_at_most_two_weeks() {
        assert!(VALID + BACKDATED <= Duration::from_secs(14 * 86_400));
    }

    #[test]
    fn a_host_that_no_certificate_can_name_is_an_error() {
        let error = Generated::new(&hosts(&["naïve.test"]), at(NOW)).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("no certificate can be generated for naïve.test"), "{error}");
    }
}
