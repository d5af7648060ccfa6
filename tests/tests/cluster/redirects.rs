//! Peers that redirect. A relay of ours sends nobody elsewhere, so these are servers of the test.

use crate::node::alone;
use anyhow::Context as _;
use moq_net::goaway::Goaway;
use moq_net::origin;
use moq_tokio::Restart;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::native::{self, Scheme};
use tests::wait::{self, PATIENCE};
use tokio::sync::watch;

/// A server of `moq-net` directly on QUIC. Once it is told to, it redirects each session that is or will be there, and
/// serves them on.
struct Redirector {
    address: SocketAddr,
    /// When each session was set up.
    dials: Arc<Mutex<Vec<Instant>>>,
    endpoint: quinn::Endpoint,
}

impl Redirector {
    fn bind() -> anyhow::Result<Self> {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![pair.cert.der().clone()], key.into())?;
        tls.alpn_protocols = vec![b"moq-lite-06".to_vec()];
        let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls)?;
        let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        let endpoint = quinn::Endpoint::server(config, ([127, 0, 0, 1], 0).into())?;
        Ok(Self { address: endpoint.local_addr()?, dials: Arc::default(), endpoint })
    }

    /// Serves `origin`; redirects to `to` when `redirects` becomes true.
    fn serve(&self, origin: &origin::Producer, to: SocketAddr, redirects: watch::Receiver<bool>) {
        let (endpoint, origin, dials) = (self.endpoint.clone(), origin.clone(), self.dials.clone());
        tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let (origin, dials, redirects) = (origin.clone(), dials.clone(), redirects.clone());
                tokio::spawn(session(incoming, origin, dials, to, redirects));
            }
        });
    }

    fn dials(&self) -> Vec<Instant> {
        self.dials.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn session(
    incoming: quinn::Incoming,
    origin: origin::Producer,
    dials: Arc<Mutex<Vec<Instant>>>,
    to: SocketAddr,
    mut redirects: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let transport = web_transport_quinn::Session::raw(incoming.await?);
    let server = moq_net::Server::new().with_publisher(&origin);
    let (session, driver) = server.accept(Instant::now(), transport).await?;
    tokio::spawn(moq_net::time::run(driver));
    dials.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    redirects.wait_for(|redirects| *redirects).await?;
    // With credentials that are good once, as a relay that signs its redirects sends them.
    let uri = format!("moqt://{to}/?jwt={:016x}", rand::random::<u64>());
    session.drain().send(Goaway::redirect(uri))?;
    session.closed().await;
    Ok(())
}

/// Without damping, two relays that send to each other have us dial as fast as packets travel, and content is lost
/// with each session that is torn down for the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_that_redirect_to_each_other_are_dialed_six_times_in_the_first_second_under_load()
-> anyhow::Result<()> {
    let origin = media::origin();
    let publisher = Publisher::start(&origin, "live", crate::node::RATE)?;
    let (one, other) = (Redirector::bind()?, Redirector::bind()?);
    let redirects = watch::Sender::new(false);
    one.serve(&origin, other.address, redirects.subscribe());
    other.serve(&origin, one.address, redirects.subscribe());

    let peer = format!("moqt://{}/", one.address);
    let pace = ["--backoff-initial", "10ms", "--backoff-timeout", "4s", "--connect-tls-insecure"];
    let args = [&pace[..], &["--cluster-connect", &peer]].concat();
    let node = alone("**", &args.into_iter().map(str::to_owned).collect::<Vec<_>>()).await?;
    let sink = media::origin();
    let url = native::url(Scheme::Quic, node.address)?;
    let _watching = native::subscribe(&sink, url, Restart::Redial).await?;
    let subscriber = Subscriber::start(&sink, "live");
    subscriber.wait_for(1, PATIENCE).await?;

    redirects.send_replace(true);
    let begun = Instant::now();
    node.process.wait_for_line("redirect loop", PATIENCE).await?;
    let took = begun.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(10)).contains(&took), "{took:?}");
    let mut dials = [one.dials(), other.dials()].concat();
    dials.sort();
    // The first is the dial before the redirects began; what follows from then on is the loop.
    let second = begun + Duration::from_secs(1);
    let in_the_first_second = dials.iter().filter(|at| **at < second).count();
    assert!((3..=6).contains(&in_the_first_second), "{in_the_first_second} dials: {dials:?}");

    // Neither relay closes anything, so neither may the link.
    let report = subscriber.wait_for_all(publisher.sent() + 1, PATIENCE).await?;
    assert_eq!(report.interruptions, 0, "{report:?}");
    Ok(())
}

/// A relay that leaves for good names another one, and is followed there at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_followed_before_the_old_session_is_let_go() -> anyhow::Result<()> {
    let origin = media::origin();
    let publisher = Publisher::start(&origin, "live", crate::node::RATE)?;
    let (one, other) = (Redirector::bind()?, Redirector::bind()?);
    let (redirects, never) = (watch::Sender::new(false), watch::Sender::new(false));
    one.serve(&origin, other.address, redirects.subscribe());
    other.serve(&origin, one.address, never.subscribe());
    let peer = format!("moqt://{}/", one.address);
    let args = ["--goaway-handover", "1s", "--connect-tls-insecure", "--cluster-connect", &peer].map(str::to_owned);
    let node = alone("**", &args).await?;
    let sink = media::origin();
    let _watching = native::subscribe(&sink, native::url(Scheme::Quic, node.address)?, Restart::Redial).await?;
    let subscriber = Subscriber::start(&sink, "live");
    subscriber.wait_for(1, PATIENCE).await?;
    redirects.send_replace(true);
    node.process.wait_for_line("peer disconnected", PATIENCE).await.context("the old session is let go")?;
    let report = subscriber.wait_for_all(publisher.sent() + u64::from(crate::node::RATE), PATIENCE).await?;
    assert_eq!(report.interruptions, 0, "{report:?}");
    // The second relay was tried out first.
    let counts = || (one.dials().len(), other.dials().len());
    wait::until(PATIENCE, "the dials", || Ok(counts() == (1, 2))).await.with_context(|| format!("{:?}", counts()))
}
