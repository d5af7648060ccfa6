//! Whole handshakes in memory, files that are no good, and reloads.

use super::*;
use crate::config::PairFiles;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConnection};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const TICKETS: [u8; 32] = [7; 32];

/// A self-signed certificate and key as PEM.
fn pem(host: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([host.to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Writes a pair for `host` under its name.
fn pair(directory: &Path, host: &str) -> PairFiles {
    let (cert, key) = pem(host);
    PairFiles {
        cert: write(directory, &format!("{host}.crt"), &cert),
        key: write(directory, &format!("{host}.key"), &key),
    }
}

fn files(pairs: Vec<PairFiles>) -> config::Tls {
    config::Tls { pairs, generate: Vec::new(), roots: Vec::new() }
}

fn generated_for(hosts: &[&str]) -> config::Tls {
    let generate = hosts.iter().map(|host| (*host).to_owned()).collect();
    config::Tls { pairs: Vec::new(), generate, roots: Vec::new() }
}

fn load_kept(settings: &config::Tls, kept: Option<&[u8]>) -> Result<Loaded, Error> {
    Tls::load(settings, &Versions::all(), &TICKETS, kept, SystemTime::now())
}

fn load(settings: &config::Tls) -> Tls {
    load_kept(settings, None).unwrap().tls
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A client that trusts exactly this leaf, and resumes.
fn client(
    leaf: &CertificateDer<'_>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(leaf.clone().into_owned()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![H3.to_vec()];
    config.resumption = Resumption::in_memory_sessions(8);
    config.enable_early_data = true;
    config
}

fn leaf(tls: &Tls) -> CertificateDer<'static> {
    tls.certificates.select(None).unwrap().cert.first().unwrap().clone()
}

/// Shakes hands until both are done, tickets included.
fn connect(
    client: &Arc<ClientConfig>,
    tls: &Tls,
    host: &str,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let mut server = ServerConnection::new(tls.server_config()).unwrap();
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
        }
        server.process_new_packets()?;
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
        }
        client.process_new_packets()?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((client, server))
}

#[test]
fn the_protocols_are_those_of_the_versions_with_http_3_last() {
    let names: Vec<_> = alpns(&Versions::all()).into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    let expected = "moq-lite-06 moq-lite-05 moq-lite-04 moq-lite-03 moql moqt-22 moqt-21 moqt-20 moqt-19 moqt-18 moqt-17 \
                    moqt-16 moqt-15 moq-00 h3";
    assert_eq!(names.join(" "), expected);
    let one = Versions::from("moq-transport-20".parse::<moq_net::Version>().unwrap());
    assert_eq!(alpns(&one), [b"moqt-20".to_vec(), H3.to_vec()]);
}

/// A viewer that moves from one generation to the next, and back at a rollback, resumes each time.
#[test]
fn a_session_is_resumed_from_one_process_to_another_and_back() {
    let settings = generated_for(&["localhost"]);
    let first = load_kept(&settings, None).unwrap();
    let a = first.tls;
    let b = load_kept(&settings, Some(&first.keep.unwrap())).unwrap().tls;
    let client = Arc::new(client(&leaf(&a), None));
    for (tls, kind) in [(&a, HandshakeKind::Full), (&b, HandshakeKind::Resumed), (&a, HandshakeKind::Resumed)] {
        let (client, server) = connect(&client, tls, "localhost").unwrap();
        assert_eq!((client.handshake_kind(), server.handshake_kind()), (Some(kind), Some(kind)));
        assert_eq!(server.alpn_protocol(), Some(H3));
        assert!(!client.is_early_data_accepted());
    }
}

#[test]
fn a_relay_with_another_secret_does_not_resume_and_still_serves() {
    let settings = generated_for(&["localhost"]);
    let first = load_kept(&settings, None).unwrap();
    let kept = first.keep.unwrap();
    let other = Tls::load(&settings, &Versions::all(), &[8; 32], Some(&kept), SystemTime::now()).unwrap().tls;
    let client = Arc::new(client(&leaf(&first.tls), None));
    connect(&client, &first.tls, "localhost").unwrap();
    let (_, server) = connect(&client, &other, "localhost").unwrap();
    assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full));
}

#[test]
fn a_kept_certificate_has_the_same_fingerprint_and_a_damaged_one_is_made_anew() {
    let settings = generated_for(&["localhost", "127.0.0.1", "::1"]);
    let first = load_kept(&settings, None).unwrap();
    let kept = first.keep.unwrap();
    let second = load_kept(&settings, Some(&kept)).unwrap();
    assert!(second.keep.is_none());
    assert_eq!(first.tls.fingerprints(), second.tls.fingerprints());
    assert_eq!(first.tls.fingerprints()[0].len(), 64);

    let text = String::from_utf8(kept.to_vec()).unwrap();
    // The first bytes of the certificate, which then no longer parses.
    let damaged = text.replacen("\"certificate\":\"30", "\"certificate\":\"31", 1);
    for kept in [damaged.as_bytes(), b"", &kept[..kept.len() / 2]] {
        let other = load_kept(&settings, Some(kept)).unwrap();
        assert!(other.keep.is_some());
        assert_ne!(first.tls.fingerprints(), other.tls.fingerprints());
    }
}

#[test]
fn a_generated_certificate_is_renewed_in_time_while_the_relay_runs() {
    let tls = load(&generated_for(&["localhost"]));
    let before = tls.fingerprints();
    let now = SystemTime::now();
    assert!(tls.check(now + Duration::from_secs(11 * 86_400)).is_none());
    assert_eq!(tls.fingerprints(), before);
    let later = now + Duration::from_secs(12 * 86_400);
    let kept = tls.check(later).unwrap();
    assert_ne!(tls.fingerprints(), before);
    assert!(tls.check(later).is_none());
    let next = Tls::load(&generated_for(&["localhost"]), &Versions::all(), &TICKETS, Some(&kept), later).unwrap();
    assert_eq!(next.tls.fingerprints(), tls.fingerprints());
}

#[test]
fn the_certificate_is_chosen_by_name_and_the_first_is_for_the_rest() {
    let directory = TempDir::new().unwrap();
    let mut settings = files(vec![pair(directory.path(), "a.test"), pair(directory.path(), "b.test")]);
    settings.generate = vec!["*.c.test".to_owned(), "192.0.2.7".to_owned()];
    let tls = load(&settings);
    let all = tls.fingerprints();
    assert_eq!(all.len(), 3);
    let select = |name: Option<&str>| {
        let pair = tls.certificates.select(name).unwrap();
        Certificates::new(vec![pair]).fingerprints().remove(0)
    };
    for (name, index) in [
        (Some("a.test"), 0),
        (Some("b.test"), 1),
        (Some("B.TEST"), 1),
        (Some("x.c.test"), 2),
        (Some("192.0.2.7"), 2),
        (Some("d.test"), 0),
        (Some("not a name"), 0),
        (None, 0),
    ] {
        assert_eq!(select(name), all[index], "{name:?}");
    }
}

/// Each kind of bad file: one line that names it.
#[test]
fn a_bad_file_is_named_with_what_to_do() {
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    let (a, b) = (pair(directory, "a.test"), pair(directory, "b.test"));
    let garbage = write(directory, "garbage", "this is no PEM\n");
    let broken = write(directory, "broken", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    let broken_key = write(directory, "broken.key", "-----BEGIN PRIVATE KEY-----\n!!!\n-----END PRIVATE KEY-----\n");
    let not_x509 = write(directory, "not-x509", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let not_a_key = write(directory, "not.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let missing = directory.join("missing");
    let with = |cert: &PathBuf, key: &PathBuf| files(vec![PairFiles { cert: cert.clone(), key: key.clone() }]);
    let rooted = |root: &PathBuf| config::Tls { roots: vec![root.clone()], ..files(vec![a.clone()]) };
    for (settings, culprit, expected) in [
        (with(&missing, &a.key), &missing, ": can't read the certificate (No such file"),
        (with(&a.cert, &missing), &missing, ": can't read the private key (No such file"),
        (with(&garbage, &a.key), &garbage, ": there is no certificate in this file; give a PEM file that has one"),
        (with(&a.cert, &garbage), &garbage, ": there is no private key in this file"),
        (with(&a.key, &a.key), &a.key, ": there is no certificate in this file"),
        (with(&broken, &a.key), &broken, ": the certificate doesn't parse ("),
        (with(&a.cert, &broken_key), &broken_key, ": the private key doesn't parse ("),
        (with(&not_x509, &a.key), &not_x509, ": the certificate doesn't parse ("),
        (with(&a.cert, &not_a_key), &not_a_key, ": the private key can't be used ("),
        (with(&a.cert, &b.key), &b.key, ": the private key doesn't match the certificate in "),
        (rooted(&garbage), &garbage, ": there is no certificate in this file"),
        (rooted(&not_x509), &not_x509, ": a certificate in this file can't be an authority ("),
    ] {
        let error = load_kept(&settings, None).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}{expected}", culprit.display())), "{error}");
        assert!(!error.contains('\n') && error.contains("; "), "{error}");
    }
}

#[test]
fn changed_files_are_served_from_the_next_handshake_on_and_bad_ones_are_not() {
    let directory = TempDir::new().unwrap();
    let files_of = pair(directory.path(), "a.test");
    let tls = load(&files(vec![files_of.clone()]));
    let first = tls.fingerprints();
    let config = tls.server_config();

    // As a renewal does it: the new certificate is there before its key.
    let (cert, key) = pem("a.test");
    fs::write(&files_of.cert, cert).unwrap();
    assert!(tls.check(SystemTime::now()).is_none());
    assert_eq!(tls.fingerprints(), first);
    assert!(matches!(tls.reload(), Err(Error::Mismatch { .. })));

    fs::write(&files_of.key, key).unwrap();
    assert!(tls.check(SystemTime::now()).is_none());
    assert_ne!(tls.fingerprints(), first);
    assert!(Arc::ptr_eq(&config, &tls.server_config()), "the workers' configuration is the same");
    connect(&Arc::new(client(&leaf(&tls), None)), &tls, "a.test").unwrap();

    fs::remove_file(&files_of.key).unwrap();
    let second = tls.fingerprints();
    assert!(matches!(tls.reload(), Err(Error::Read { .. })));
    assert_eq!(tls.fingerprints(), second);
}

#[test]
fn a_swapped_link_is_a_change() {
    let directory = TempDir::new().unwrap();
    let (old, new) = (pair(directory.path(), "old.test"), pair(directory.path(), "new.test"));
    let linked = PairFiles { cert: directory.path().join("cert"), key: directory.path().join("key") };
    let link = |to: &PairFiles| {
        for (target, name) in [(&to.cert, &linked.cert), (&to.key, &linked.key)] {
            drop(fs::remove_file(name));
            std::os::unix::fs::symlink(target, name).unwrap();
        }
    };
    link(&old);
    let tls = load(&files(vec![linked.clone()]));
    link(&new);
    assert!(tls.check(SystemTime::now()).is_none());
    assert_eq!(tls.fingerprints(), load(&files(vec![new.clone()])).fingerprints());
}

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn identity(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["client.test".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

#[test]
fn client_certificates_are_optional_verified_never_resumed_and_their_authorities_reloaded() {
    let directory = TempDir::new().unwrap();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let root = write(directory.path(), "root.pem", &ours.pem);
    let tls = load(&config::Tls { roots: vec![root.clone()], ..generated_for(&["localhost"]) });
    let with = |identity| Arc::new(client(&leaf(&tls), identity));
    let (nobody, ours_client, theirs_client) = (with(None), with(Some(ours.identity())), with(Some(theirs.identity())));

    for client in [&nobody, &ours_client] {
        for _ in 0..2 {
            let (_, server) = connect(client, &tls, "localhost").unwrap();
            assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full));
        }
    }
    assert!(connect(&theirs_client, &tls, "localhost").is_err());

    fs::write(&root, &theirs.pem).unwrap();
    tls.reload().unwrap();
    assert!(connect(&theirs_client, &tls, "localhost").is_ok());
    assert!(connect(&ours_client, &tls, "localhost").is_err());
}
