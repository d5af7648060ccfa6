//! MoQ clients on `web-transport-quinn` and `moq-net`: one session each, which does with a GOAWAY what the test says.

use crate::client::{SERVER_NAME, local_for};
use crate::tls::{self, Seen};
use crate::wait::{self, PATIENCE};
use anyhow::Context as _;
use moq_net::{Versions, origin};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use url::Url;
use web_transport_quinn::proto::ConnectRequest;

/// What a session carries.
#[derive(Clone, Default)]
pub struct Media {
    publish: Option<origin::Producer>,
    subscribe: Option<origin::Producer>,
}

impl Media {
    /// What `origin` announces is published.
    #[must_use]
    pub fn publish(origin: &origin::Producer) -> Self {
        Self { publish: Some(origin.clone()), subscribe: None }
    }

    /// What the relay announces comes into `origin`.
    #[must_use]
    pub fn subscribe(origin: &origin::Producer) -> Self {
        Self { publish: None, subscribe: Some(origin.clone()) }
    }

    /// Both of these, as a peer does it.
    #[must_use]
    pub fn both(origin: &origin::Producer) -> Self {
        Self { publish: Some(origin.clone()), subscribe: Some(origin.clone()) }
    }
}

/// One session, from its own UDP port. Dropping it closes it.
pub struct Session {
    endpoint: quinn::Endpoint,
    connection: quinn::Connection,
    seen: Seen,
    moq: moq_net::Session,
    driver: JoinHandle<moq_net::Error>,
}

impl Session {
    /// Connects to the relay at `server` over WebTransport, with every version that `moq-net` speaks on offer.
    ///
    /// # Errors
    /// The handshake or the set-up of the session did not succeed within [`PATIENCE`].
    pub async fn connect(server: SocketAddr, media: &Media) -> anyhow::Result<Self> {
        Self::connect_as(server, "/", media, Versions::default()).await
    }

    /// As [`Session::connect`], with this path and query in the URL.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub async fn connect_to(server: SocketAddr, target: &str, media: &Media) -> anyhow::Result<Self> {
        Self::connect_as(server, target, media, Versions::default()).await
    }

    /// As [`Session::connect`], but only these versions are on offer.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub async fn connect_with(server: SocketAddr, media: &Media, versions: Versions) -> anyhow::Result<Self> {
        Self::connect_as(server, "/", media, versions).await
    }

    /// As [`Session::connect`], without keep-alive: see [`tls::silent_client`].
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub async fn connect_silently(server: SocketAddr, media: &Media) -> anyhow::Result<Self> {
        let seen = Seen::default();
        let config = tls::silent_client(&[web_transport_quinn::ALPN], &seen)?;
        let session = Self::connect_patiently(server, "/", media, Versions::default(), config, seen);
        wait::within(PATIENCE, "a WebTransport session", session).await?
    }

    async fn connect_as(server: SocketAddr, target: &str, media: &Media, versions: Versions) -> anyhow::Result<Self> {
        let seen = Seen::default();
        let config = tls::client(&[web_transport_quinn::ALPN], &seen)?;
        let session = Self::connect_patiently(server, target, media, versions, config, seen);
        wait::within(PATIENCE, "a WebTransport session", session).await?
    }

    async fn connect_patiently(
        server: SocketAddr,
        target: &str,
        media: &Media,
        versions: Versions,
        config: quinn::ClientConfig,
        seen: Seen,
    ) -> anyhow::Result<Self> {
        let endpoint = quinn::Endpoint::client(local_for(server)).context("a client socket")?;
        let connection = endpoint.connect_with(config, server, SERVER_NAME)?.await.context("the QUIC handshake")?;
        let url = Url::parse(&format!("https://{SERVER_NAME}:{}{target}", server.port()))?;
        let offered = versions.alpns().into_iter().map(str::to_owned);
        let request = ConnectRequest::new(url).with_protocols(offered);
        let transport =
            web_transport_quinn::Session::connect(connection.clone(), request).await.context("WebTransport")?;
        let mut client = moq_net::Client::new().with_versions(versions);
        if let Some(origin) = &media.publish {
            client = client.with_publisher(origin);
        }
        if let Some(origin) = &media.subscribe {
            client = client.with_subscriber(origin.clone());
        }
        let (moq, driver) = client.connect(Instant::now(), transport).await.context("the MoQ set-up")?;
        let driver = tokio::spawn(moq_net::time::run(driver));
        Ok(Self { endpoint, connection, seen, moq, driver })
    }

    /// The fingerprint of the relay's certificate, in hex.
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        self.seen.fingerprint()
    }

    /// The MoQ version that was agreed on.
    #[must_use]
    pub fn version(&self) -> moq_net::Version {
        self.moq.version()
    }

    /// True once the relay has told it to go.
    #[must_use]
    pub fn told(&self) -> bool {
        self.moq.draining().peek().is_some()
    }

    /// Waits for the relay's GOAWAY and returns the URI in it.
    ///
    /// # Errors
    /// It has not come until `deadline`, or the session was closed without one.
    pub async fn goaway(&self, deadline: Duration) -> anyhow::Result<String> {
        let draining = self.moq.draining();
        let goaway = wait::within(deadline, "a GOAWAY", draining.recv()).await?;
        Ok(goaway.context("the session was closed without a GOAWAY")?.uri().to_owned())
    }

    /// Waits for the end of the session and returns what it ended with.
    ///
    /// # Errors
    /// It has not ended until `deadline`.
    pub async fn closed(&self, deadline: Duration) -> anyhow::Result<moq_net::Error> {
        wait::within(deadline, "the end of the session", self.moq.closed()).await
    }

    /// True until the connection has ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.connection.close_reason().is_none() && !self.driver.is_finished()
    }

    /// Goes on from another UDP port.
    ///
    /// # Errors
    /// It has no other socket.
    pub fn rebind(&self) -> anyhow::Result<()> {
        let local = local_for(self.connection.remote_address());
        let socket = std::net::UdpSocket::bind(local).context("another client socket")?;
        self.endpoint.rebind(socket).context("rebinding")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.close(0_u8.into(), b"");
        self.driver.abort();
    }
}
