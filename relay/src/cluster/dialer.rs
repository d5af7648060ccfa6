//! One dial: name, addresses, QUIC, TLS, WebTransport or raw, MoQ.

use super::peer::Shown;
use crate::config::Connect;
use crate::linger;
use crate::quic;
use crate::reconnect::{DEFAULT_PORT, Failure};
use crate::role::Role;
use crate::tls::Trust;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use moq_net::goaway::Goaway;
use moq_net::{Versions, origin};
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use url::{Host, Url};
use web_transport_quinn::http::StatusCode;
use web_transport_quinn::proto::{self, ConnectRequest};
use web_transport_quinn::{ClientError, ConnectError, Session};

/// How long a peer has to say that it is leaving, beside two round trips: a draining relay tells a newcomer at once.
const TRIAL: Duration = Duration::from_millis(100);

/// A session with a peer, and what drives it.
pub(super) type Dialed = (moq_net::Session, moq_net::Driver<linger::Session<Session>>);

/// Dials. All dials share one socket.
pub(super) struct Dialer {
    endpoint: quinn::Endpoint,
    transport: Arc<quinn::TransportConfig>,
    trust: Trust,
    versions: Versions,
    race: Duration,
    timeout: Option<Duration>,
    origin: origin::Producer,
    role: watch::Receiver<Role>,
}

/// Why a dial failed. No message shows the URL's path or query.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("it took longer than the connect timeout")]
    Timeout,
    #[error("can't look up its name: {0}")]
    Lookup(#[source] io::Error),
    #[error("its name has no address")]
    NoAddress,
    #[error("{0}")]
    Connect(#[from] quinn::ConnectError),
    #[error("{0}")]
    Connection(#[from] quinn::ConnectionError),
    #[error("its TLS configuration can't do QUIC: {0}")]
    Tls(#[from] NoInitialCipherSuite),
    #[error("{0}")]
    WebTransport(#[from] ClientError),
    #[error("{0}")]
    Moq(#[from] moq_net::Error),
}

impl Dialer {
    /// Opens the socket, in a process that has this role.
    ///
    /// # Errors
    /// The address can't be bound.
    pub(super) fn new(
        settings: &Connect,
        quic: &crate::config::Quic,
        trust: Trust,
        origin: origin::Producer,
        role: watch::Receiver<Role>,
    ) -> io::Result<Self> {
        let endpoint = match settings.bind {
            Some(address) => quinn::Endpoint::client(address)?,
            // A machine without IPv6 has no dual-stack sockets.
            None => quinn::Endpoint::client((Ipv6Addr::UNSPECIFIED, 0).into())
                .or_else(|_| quinn::Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into()))?,
        };
        Ok(Self {
            endpoint,
            transport: Arc::new(quic::transport(quic)),
            trust,
            versions: settings.versions.clone(),
            race: settings.race,
            timeout: settings.timeout,
            origin,
            role,
        })
    }

    /// Whether certificates are checked by their fingerprints.
    pub(super) fn pins(&self) -> bool {
        self.trust.pins()
    }

    /// Dials `url`, whose scheme is one of [`crate::reconnect::SCHEMES`], over a link of this price.
    ///
    /// # Errors
    /// Whatever fails first.
    pub(super) async fn dial(&self, url: &Url, cost: Option<u64>) -> Result<Dialed, DialError> {
        let mut client = moq_net::Client::new()
            .with_publisher(self.origin.consume().with_hidden(true))
            .with_subscriber(self.origin.clone().peer());
        if let Some(cost) = cost {
            client = client.with_cost(cost);
        }
        self.within(self.establish(url, client)).await
    }

    /// Dials `url` with nothing to give or to take, and waits whether the peer says that it is leaving; `None`: it does
    /// not.
    ///
    /// # Errors
    /// Whatever fails first.
    pub(super) async fn try_out(&self, url: &Url) -> Result<Option<Goaway>, DialError> {
        let (origin, driver) = origin::Producer::new(origin::Config::default());
        let driver = tokio::spawn(moq_net::time::run(driver));
        let tried = self.try_with(url, origin).await;
        driver.abort();
        tried
    }

    async fn try_with(&self, url: &Url, origin: origin::Producer) -> Result<Option<Goaway>, DialError> {
        // Both directions, as a peer has them: with one alone the peer might refuse what it grants to a peer.
        let client = moq_net::Client::new().with_origin(origin);
        let (session, driver) = self.within(self.establish(url, client)).await?;
        let driver = tokio::spawn(moq_net::time::run(driver));
        let trial = TRIAL + 2 * session.stats().rtt.unwrap_or_default();
        let goaway = tokio::time::timeout(trial, session.draining().recv()).await;
        session.abort(moq_net::Error::Cancel);
        drop(driver.await);
        match goaway {
            Ok(Some(goaway)) => Ok(Some(goaway)),
            Ok(None) => Err(DialError::Moq(session.closed().await)),
            Err(_) => Ok(None),
        }
    }

    /// Waits until the closes of all connections are on the wire, but not longer than that.
    pub(super) async fn flush(&self, time: Duration) {
        drop(tokio::time::timeout(time, self.endpoint.wait_idle()).await);
    }

    async fn within<T>(&self, dial: impl Future<Output = Result<T, DialError>>) -> Result<T, DialError> {
        match self.timeout {
            Some(timeout) => tokio::time::timeout(timeout, dial).await.map_err(|_| DialError::Timeout)?,
            None => dial.await,
        }
    }

    async fn establish(&self, url: &Url, client: moq_net::Client) -> Result<Dialed, DialError> {
        let web_transport = url.scheme() == "https";
        let connection = self.connect(url, web_transport).await?;
        let mut client = client.with_versions(self.versions.clone());
        let session = if web_transport {
            let request = ConnectRequest::new(url.clone());
            let names = self.versions.alpns().into_iter().map(ToOwned::to_owned);
            Session::connect(connection, names.fold(request, ConnectRequest::with_protocol)).await?
        } else {
            // Nothing else carries them: draft-ietf-moq-transport, SETUP parameters PATH and AUTHORITY.
            client = client.with_path(target(url));
            if url.scheme() == "moqt" {
                client = client.with_authority(authority(url));
            }
            Session::raw(connection)
        };
        Ok(client.connect(Instant::now(), linger::Session::new(session, self.role.clone())).await?)
    }

    async fn connect(&self, url: &Url, web_transport: bool) -> Result<quinn::Connection, DialError> {
        let mut tls = rustls::ClientConfig::clone(&self.trust.client_config());
        tls.alpn_protocols = if web_transport {
            vec![crate::tls::H3.to_vec()]
        } else {
            self.versions.alpns().into_iter().map(|name| name.as_bytes().to_vec()).collect()
        };
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(self.transport.clone());
        let host = host(url);
        let name = self.trust.host_name().unwrap_or(&host);
        let port = url.port().unwrap_or(DEFAULT_PORT);
        let found = tokio::net::lookup_host((host.as_str(), port)).await.map_err(DialError::Lookup)?;
        let ipv6 = self.endpoint.local_addr().is_ok_and(|local| local.is_ipv6());
        let addresses: Vec<SocketAddr> = found.filter(|address| ipv6 || address.is_ipv4()).collect();
        race(addresses, self.race, |address| {
            tracing::debug!(peer = %Shown(url), %address, "dialing an address");
            let connecting = self.endpoint.connect_with(config.clone(), address, name);
            async move { Ok(connecting?.await?) }
        })
        .await
    }
}

/// Tries each address, the next one when the one before has failed or has been alone for `stagger`; the first to succeed
/// wins, and the others are dropped (RFC 8305 §5). Fails with the error of the last one.
async fn race<T, F>(
    addresses: Vec<SocketAddr>,
    stagger: Duration,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<T, DialError>
where
    F: Future<Output = Result<T, DialError>>,
{
    let mut rest = addresses.into_iter();
    let mut running = FuturesUnordered::new();
    let mut last = DialError::NoAddress;
    loop {
        if running.is_empty() {
            match rest.next() {
                Some(address) => running.push(attempt(address)),
                None => return Err(last),
            }
        }
        let alone = pin!(tokio::time::sleep(stagger));
        tokio::select! {
            biased;
            Some(result) = running.next() => match result {
                Ok(won) => return Ok(won),
                Err(error) => {
                    tracing::debug!(%error, "an address failed");
                    last = error;
                    running.extend(rest.next().map(&attempt));
                }
            },
            () = alone, if rest.len() > 0 => running.extend(rest.next().map(&attempt)),
        }
    }
}

/// The host as a name or an address without brackets. For schemes that it does not know, the `url` crate leaves an
/// address as text.
fn host(url: &Url) -> String {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.to_string(),
        Some(Host::Ipv6(ip)) => ip.to_string(),
        Some(Host::Domain(name)) => name.to_owned(),
        None => String::new(),
    }
}

/// The path and the query.
fn target(url: &Url) -> String {
    let path = if url.path().is_empty() { "/" } else { url.path() };
    match url.query().filter(|query| !query.is_empty()) {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// The host and the port, without user and password.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

impl DialError {
    /// Whether another dial can do better.
    pub(super) fn failure(&self) -> Failure {
        let text = self.to_string();
        match self {
            Self::WebTransport(ClientError::HttpError(ConnectError::ProtoError(proto::ConnectError::WrongStatus(
                Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN),
            )))) => Failure::Final(text),
            Self::Moq(error) => ending(error),
            Self::Timeout
            | Self::Lookup(_)
            | Self::NoAddress
            | Self::Connect(_)
            | Self::Connection(_)
            | Self::Tls(_)
            | Self::WebTransport(_) => Failure::Passing(text),
        }
    }
}

/// What the end of a session means for the next dial.
pub(super) fn ending(error: &moq_net::Error) -> Failure {
    let refused =
        matches!(error, moq_net::Error::Unauthorized | moq_net::Error::Session(moq_net::SessionError::Unauthorized));
    if refused { Failure::Final(error.to_string()) } else { Failure::Passing(error.to_string()) }
}
