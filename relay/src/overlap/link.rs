//! One link: qmux over the socketpair, MoQ over that.

use crate::linger;
use crate::role::Role;
use moq_net::web_transport_trait::Session as _;
use moq_net::{Versions, origin};
use moq_tokio::transport::Session;
use protocol::message::Generation;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The wire format; generations of one node may be of different builds, so it is the one that all have.
const WIRE: qmux::Version = qmux::Version::QMux01;

/// Streams at a time and direction: one per group and subscription, as many as a QUIC session may have by default.
const STREAMS: u64 = 10_000;

/// Bytes that may be on the way, in all: what a peer that does not read costs us at most, beside what the cache keeps.
const WINDOW: u64 = 8 << 20;

/// Bytes that may be on the way in one stream: a large key frame.
const STREAM_WINDOW: u64 = 1 << 20;

/// A peer that has been silent for so long is not there any more. It would answer within microseconds; the supervisor
/// counts it as unwell after this time too.
const IDLE: Duration = Duration::from_secs(10);

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// The socket can't be used.
    #[error("the socket can't be used: {0}")]
    Socket(#[from] std::io::Error),
    /// The transport could not be set up: the other generation has gone, or is no relay of this kind.
    #[error("the other generation does not answer: {0}")]
    Transport(#[from] qmux::Error),
    /// The two have no protocol version in common.
    #[error("there is no common version of MoQ: {0}")]
    Setup(#[from] moq_net::Error),
}

/// Drives a session to its end, which it returns.
type Driving = Pin<Box<dyn Future<Output = moq_net::Error> + Send>>;

/// Sets the link up. The younger generation is the client of the session: it knows that the other one is there.
///
/// Both sides publish and subscribe everything, hidden broadcasts too, and mark what they learn as a peer's, so that it
/// is passed on with their own hop in its chain and a loop is found by the hops.
pub(super) async fn establish(
    own: Generation,
    peer: Generation,
    stream: UnixStream,
    origin: origin::Producer,
    role: watch::Receiver<Role>,
) -> Result<(moq_net::Session, Driving), LinkError> {
    stream.set_nonblocking(true)?;
    let stream = tokio::net::UnixStream::from_std(stream)?;
    let versions = Versions::all();
    let config = config(&versions);
    let transport = qmux::transport::Stream::new(stream, config.version, config.max_record_size);
    let origin = origin.peer();
    let broadcasts = origin.consume().with_hidden(true);
    if own > peer {
        let transport = qmux::Session::connect(transport, config).await?;
        tracing::debug!(generation = %peer, protocol = transport.protocol(), "link transport is up");
        let client = moq_net::Client::new().with_versions(versions).with_publisher(broadcasts).with_subscriber(origin);
        let (session, driver) =
            client.connect(Instant::now(), linger::Session::new(Session::new(transport), role)).await?;
        Ok((session, Box::pin(run(driver))))
    } else {
        let transport = qmux::Session::accept(transport, config).await?;
        let server = moq_net::Server::new().with_versions(versions).with_publisher(broadcasts).with_subscriber(origin);
        let (session, driver) =
            server.accept(Instant::now(), linger::Session::new(Session::new(transport), role)).await?;
        Ok((session, Box::pin(run(driver))))
    }
}

async fn run<S: moq_net::transport::poll::Session>(driver: moq_net::Driver<S>) -> moq_net::Error {
    moq_net::time::run(driver).await
}

fn config(versions: &Versions) -> qmux::Config {
    let mut config = qmux::Config::new(WIRE);
    config.protocol = qmux::Protocol::Negotiate(versions.alpns().into_iter().map(str::to_owned).collect());
    config.max_streams_bidi = STREAMS;
    config.max_streams_uni = STREAMS;
    config.max_data = WINDOW;
    config.max_stream_data_bidi_local = STREAM_WINDOW;
    config.max_stream_data_bidi_remote = STREAM_WINDOW;
    config.max_stream_data_uni = STREAM_WINDOW;
    config.max_idle_timeout = u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX);
    config
}
