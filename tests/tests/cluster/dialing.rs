//! Who is dialed, with what, and what comes over the link.

use crate::node::{
    RATE, TOKEN, alone, assert_discreet, dialing, member, operators, telltale, token_file, url, with_operators,
};
use anyhow::{Context as _, ensure};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::time::Duration;
use tests::client::flow::Flow;
use tests::client::native::Scheme;
use tests::client::scrape;
use tests::wait::{self, PATIENCE};

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
    let middle = telltale("anon/**", &[dialing(&[]), member(token.path()).to_vec()].concat()).await?;
    let mut ends = Vec::new();
    for (scheme, version) in [(Scheme::Https, "moq-lite-06"), (Scheme::Quic, "moq-transport-22")] {
        let version = ["--connect-version", version].map(str::to_owned).to_vec();
        let args = [dialing(&[url(scheme, middle.address)?]), member(token.path()).to_vec(), version].concat();
        ends.push(telltale("**", &args).await?);
    }
    Flow::start("hidden/from/the/public", RATE, ends[0].address, ends[1].address).await?;

    let stranger = telltale("**", &dialing(&[format!("{}?jwt=wrong", url(Scheme::Https, middle.address)?)])).await?;
    let line = stranger.process.wait_for_line("failed to dial", PATIENCE).await?;
    assert!(line.contains("401"), "{line}");
    let line = stranger.process.wait_for_line("no link with a peer", PATIENCE).await?;
    assert!(line.contains("refused: ") && !line.contains("wrong"), "{line}");
    assert_discreet(&[&middle, &ends[0], &ends[1], &stranger]);
    Ok(())
}

/// Guards those who watch a cluster: which links a node has, and no more of their URLs than it takes to tell them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_are_told_the_dialed_peers_that_are_connected() -> anyhow::Result<()> {
    let token = token_file()?;
    let member = member(token.path()).to_vec();
    let dialed = telltale("**", &[dialing(&[]), member.clone()].concat()).await?;
    let peers = [url(Scheme::Https, dialed.address)?, format!("{}?jwt={TOKEN}", url(Scheme::Quic, dialed.address)?)];
    let patient = ["--quic-idle-timeout", "1s", "--quic-keep-alive", "200ms"].map(str::to_owned).to_vec();
    let dials = telltale("**", &with_operators(&[dialing(&peers), member, patient].concat())).await?;
    let operators = operators(&dials).await?;
    let nodes = async |count: usize| {
        let what = format!("{count} nodes");
        let nodes = wait::eventually(PATIENCE, &what, async || {
            let page = scrape::get(operators, "/nodes").await?;
            ensure!(!page.contains(TOKEN) && !page.contains("jwt"), "{page}");
            let page: serde_json::Value = serde_json::from_str(&page)?;
            let nodes = page["nodes"].as_array().context("nodes")?.clone();
            Ok((nodes.len() == count).then_some(nodes))
        });
        nodes.await
    };
    let found = nodes(2).await?;
    let names: Vec<_> = found.iter().filter_map(|node| node["node"].as_str()).collect();
    assert_eq!(names, [format!("https://{}/", dialed.address), format!("moqt://{}", dialed.address)]);
    for node in &found {
        let connections = node["connections"].as_array().context("connections")?;
        ensure!(connections.len() == 1, "{node}");
        // The number that the log has.
        let connection = format!("connection={} ", connections[0]["id"]);
        dials.process.wait_for_line(&connection, PATIENCE).await?;
    }
    assert_discreet(&[&dialed, &dials]);
    drop(dialed);
    nodes(0).await?;
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
    wait::until(PATIENCE, "the link is back", || Ok(dials.process.count("peer connected") == 2)).await
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
