//! Where a drain sends those who are told to go.

use crate::node::{TOKEN, alone, assert_discreet, dialing, member, token_file, url};
use nix::sys::signal::Signal;
use tests::client::media;
use tests::client::native::Scheme;
use tests::client::webtransport::{Media, Session};
use tests::wait::PATIENCE;

/// A peer of today moves at once on its own URL, and waits for the close on none; a client of today may end for good on
/// any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_is_told_its_own_url_with_its_credentials_and_a_client_none() -> anyhow::Result<()> {
    let token = token_file()?;
    let args = [dialing(&[]), member(token.path()).to_vec(), vec!["--drain-timeout".to_owned(), "30s".to_owned()]];
    let node = alone("**", &args.concat()).await?;
    let origin = media::origin();
    let both = Media::both(&origin);
    let target = format!("/room?x=1&jwt={TOKEN}");
    let peer = Session::connect_to(node.address, &target, &both).await?;
    let client = Session::connect_to(node.address, "/room?x=1", &both).await?;
    node.process.signal(Signal::SIGTERM)?;
    assert_eq!(peer.goaway(PATIENCE).await?, format!("https://localhost:{}{target}", node.address.port()));
    assert_eq!(client.goaway(PATIENCE).await?, "");
    drop((peer, client));
    node.process.wait_for_line("drained", PATIENCE).await?;
    assert_discreet(&[&node]);
    Ok(())
}

/// Both ends of a real link: the one that tells and the one that is told. Raw QUIC has no authority to make a URL of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_end_of_a_link_prints_the_token_at_a_drain() -> anyhow::Result<()> {
    let token = token_file()?;
    let versions = ["moq-lite-06", "moq-transport-17", "moq-transport-22"];
    for (scheme, version) in
        [Scheme::Https, Scheme::Quic].into_iter().flat_map(|scheme| versions.map(|version| (scheme, version)))
    {
        let version = ["--connect-version", version].map(str::to_owned).to_vec();
        let args = [dialing(&[]), member(token.path()).to_vec(), vec!["--drain-timeout".to_owned(), "2s".to_owned()]];
        let dialed = alone("**", &args.concat()).await?;
        let args = [dialing(&[url(scheme, dialed.address)?]), member(token.path()).to_vec(), version].concat();
        let dials = alone("**", &args).await?;
        dials.process.wait_for_line("peer connected", PATIENCE).await?;
        dialed.process.signal(Signal::SIGTERM)?;
        let line = dials.process.wait_for_line("the peer is leaving", PATIENCE).await?;
        assert!(line.contains("dial again"), "its own URL, or none: {line}");
        dialed.process.wait_for_line("deadline: ", PATIENCE).await?;
        assert_discreet(&[&dialed, &dials]);
    }
    Ok(())
}
