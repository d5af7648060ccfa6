//! Who is dialed, with what, and what comes over the link.

use crate::node::{RATE, alone, assert_discreet, dialing, member, token_file, url};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::time::Duration;
use tests::client::flow::Flow;
use tests::client::native::Scheme;
use tests::wait::PATIENCE;

/// A node that only forwarded in one direction, or over one transport, would split the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broadcasts_pass_in_both_directions_over_both_transports() -> anyhow::Result<()> {
    let dialed = alone("**", &dialing(&[])).await?;
    for scheme in [Scheme::Https, Scheme::Quic] {
        let peer = format!("{}?cost=5", url(scheme, dialed.address)?);
        let dials = alone("**", &dialing(&[peer])).await?;
        dials.process.wait_for_line("peer connected", PATIENCE).await?;
        let there = Flow::start("there", RATE, dials.address, dialed.address).await?;
        let back = Flow::start("back", RATE, dialed.address, dials.address).await?;
        there.check().await?;
        back.check().await?;
    }
    Ok(())
}

/// The public may have a corner only; what peers exchange is everything. And what lets them must stay a secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_opens_what_the_public_may_not_and_is_never_printed() -> anyhow::Result<()> {
    let token = token_file()?;
    let middle = alone("anon/**", &[dialing(&[]), member(token.path()).to_vec()].concat()).await?;
    let mut ends = Vec::new();
    for (scheme, version) in [(Scheme::Https, "moq-lite-06"), (Scheme::Quic, "moq-transport-22")] {
        let version = ["--connect-version", version].map(str::to_owned).to_vec();
        let args = [dialing(&[url(scheme, middle.address)?]), member(token.path()).to_vec(), version].concat();
        ends.push(alone("**", &args).await?);
    }
    Flow::start("hidden/from/the/public", RATE, ends[0].address, ends[1].address).await?.check().await?;

    let stranger = alone("**", &dialing(&[format!("{}?jwt=wrong", url(Scheme::Https, middle.address)?)])).await?;
    let line = stranger.process.wait_for_line("failed to dial", PATIENCE).await?;
    assert!(line.contains("401"), "{line}");
    let line = stranger.process.wait_for_line("no link with a peer", PATIENCE).await?;
    assert!(line.contains("refused: ") && !line.contains("wrong"), "{line}");
    assert_discreet(&[&middle, &ends[0], &ends[1], &stranger]);
    Ok(())
}

/// A pinned certificate is the only one that is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_pinned_certificate_is_trusted() -> anyhow::Result<()> {
    let dialed = alone("**", &dialing(&[])).await?;
    let line = dialed.process.wait_for_line("listening for QUIC", PATIENCE).await?;
    let right = line.split(' ').find_map(|word| word.strip_prefix("certificate=")).unwrap_or_default().to_owned();
    let wrong = "00".repeat(32);
    let peer = url(Scheme::Https, dialed.address)?;
    for (pin, outcome) in [(right, "peer connected"), (wrong, "failed to dial")] {
        let args = ["--connect-tls-fingerprint", &pin, "--cluster-connect", &peer].map(str::to_owned);
        alone("**", &args).await?.process.wait_for_line(outcome, PATIENCE).await?;
    }
    // No certificate authority has signed it either.
    let line = alone("**", &["--cluster-connect".to_owned(), peer]).await?;
    line.process.wait_for_line("failed to dial", PATIENCE).await?;
    Ok(())
}

/// A peer that comes back after a crash must not have to be asked for by anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_is_lost_is_dialed_until_it_is_back() -> anyhow::Result<()> {
    let first = alone("**", &dialing(&[])).await?;
    let address = first.address;
    let patient = ["--quic-idle-timeout", "1s", "--quic-keep-alive", "200ms", "--backoff-initial", "50ms"];
    let args = [dialing(&[url(Scheme::Https, address)?]), patient.map(str::to_owned).to_vec()].concat();
    let dials = alone("**", &args).await?;
    dials.process.wait_for_line("peer connected", PATIENCE).await?;
    drop(first);
    dials.process.wait_for_line("peer disconnected", PATIENCE).await?;
    dials.process.wait_for_line("failed to dial", Duration::from_secs(60)).await?;
    let args = ["--listen", &address.to_string(), "--listen-tls-generate", "localhost", "--auth-public", "**"];
    let launch = tests::process::Launch::new(tests::program::relay()?).args(args);
    let _second = tests::relay::Relay::of(launch.start()?).await?;
    tests::wait::until(PATIENCE, "the link is back", || Ok(dials.process.count("peer connected") == 2)).await
}

/// A cluster may know its members by certificates instead of a token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_our_authority_tells_a_peer_from_a_client() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str, pem: &str| -> anyhow::Result<String> {
        let path = folder.path().join(name);
        std::fs::write(&path, pem)?;
        Ok(path.display().to_string())
    };
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let root = file("root", &params.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    let cert = file("cert", &CertificateParams::new(["peer.test".to_owned()])?.signed_by(&key, &issuer)?.pem())?;
    let key = file("key", &key.serialize_pem())?;

    for scheme in [Scheme::Https, Scheme::Quic] {
        let dialed = alone("**", &["--listen-tls-root".to_owned(), root.clone()]).await?;
        let peers = dialing(&[url(scheme, dialed.address)?]);
        let certified = ["--connect-tls-cert", &cert, "--connect-tls-key", &key].map(str::to_owned);
        let _peer = alone("**", &[peers.clone(), certified.to_vec()].concat()).await?;
        dialed.process.wait_for_line("standing=Peer", PATIENCE).await?;
        let _stranger = alone("**", &peers).await?;
        dialed.process.wait_for_line("standing=Client", PATIENCE).await?;
    }
    Ok(())
}
