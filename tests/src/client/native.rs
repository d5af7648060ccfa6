//! MoQ clients on `moq-tokio`, as today's applications use it: QUIC by noq, redialing by itself.

use anyhow::Context as _;
use moq_net::origin;
use moq_tokio::{Connection, Restart};
use std::net::SocketAddr;
use url::Url;

/// How the client reaches the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// MoQ directly on QUIC.
    Quic,
    /// WebTransport.
    Https,
}

/// The URL of a relay.
///
/// # Errors
/// None for a real address.
pub fn url(scheme: Scheme, server: SocketAddr) -> anyhow::Result<Url> {
    let scheme = match scheme {
        Scheme::Quic => "moqt",
        Scheme::Https => "https",
    };
    Url::parse(&format!("{scheme}://{server}/")).context("the URL of an address")
}

/// A client with a socket of its own that accepts any certificate and treats an empty-URI GOAWAY by `restart`.
///
/// # Errors
/// It has no socket.
pub fn client(restart: Restart) -> anyhow::Result<moq_tokio::Client> {
    let mut config = moq_tokio::connect::Config::default();
    config.tls.insecure = Some(true);
    Ok(config.init(moq_tokio::quic::Config::default()).context("a client")?.with_restart(restart))
}

/// Connects a publisher: what `origin` announces is published.
///
/// # Errors
/// As [`client`], or the first connection can't be made.
pub async fn publish(origin: &origin::Producer, url: Url, restart: Restart) -> anyhow::Result<Connection> {
    client(restart)?.with_publisher(origin).connect(url).established().await.context("connecting a publisher")
}

/// Connects a subscriber: what the relay announces comes into `origin`.
///
/// # Errors
/// As [`publish`].
pub async fn subscribe(origin: &origin::Producer, url: Url, restart: Restart) -> anyhow::Result<Connection> {
    client(restart)?.with_subscriber(origin.clone()).connect(url).established().await.context("connecting a subscriber")
}
