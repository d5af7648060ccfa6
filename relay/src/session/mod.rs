//! One connection, from its first packet to its end: transport setup, admission, MoQ setup, service, drain.

mod directory;
mod live;
mod quic;
mod stream;

pub(crate) use directory::{Caller, Certificate, Direction, Directory, Entry, Transport};
pub(crate) use quic::serve as serve_quic;
pub(crate) use stream::{Stream, serve as serve_stream};

use crate::admission::{Grant, Refusal, Standing};
use crate::drain::{Purpose, Setup};
use crate::linger;
use crate::node::Node;
use directory::Listed;
use moq_net::transport::poll::Boxable;
use moq_net::web_transport_trait::{MaybeSync, poll};
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Why a connection did not become a session.
#[derive(Debug, thiserror::Error)]
enum SetupError {
    #[error("the handshake took longer than the listen timeout")]
    Timeout,
    #[error("it was still in setup at the drain deadline")]
    CutOff,
    #[error("{0}")]
    Quic(#[from] quinn::ConnectionError),
    #[error("{0}")]
    WebTransport(#[from] web_transport_quinn::ServerError),
    #[error("{0}")]
    Qmux(#[from] qmux::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Moq(#[from] moq_net::Error),
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    #[error("refused: uid {uid}, gid {gid}, pid {pid:?} is not on the listener's allow list")]
    NotAllowed { uid: u32, gid: u32, pid: Option<i32> },
}

/// A session that is set up.
struct Established<S: moq_net::transport::poll::Session> {
    session: moq_net::Session,
    /// What drives it.
    driver: moq_net::Driver<linger::Session<S>>,
    standing: Standing,
    purpose: Purpose,
    /// Operators are told of it until it ends, if there is a listener for them.
    _listed: Option<Listed>,
}

/// Runs a setup within the listen timeout and the deadline of a drain. Whichever comes first drops it, which closes its
/// connection.
async fn within<T>(
    timeout: Option<Duration>,
    setup: &Setup,
    establish: Pin<Box<impl Future<Output = Result<T, SetupError>>>>,
) -> Result<T, SetupError> {
    let timeout = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        result = establish => result,
        () = timeout => Err(SetupError::Timeout),
        () = setup.cut_off() => Err(SetupError::CutOff),
    }
}

/// The MoQ setup over an open transport. `granted` is the admission of a transport that says its path itself
/// (WebTransport), whose caller has its path; otherwise the path comes in the MoQ SETUP. `certified`: as in [`Rules::admit`].
///
/// [`Rules::admit`]: crate::admission::Rules::admit
async fn handshake<S>(
    node: &Node,
    session: S,
    granted: Option<Grant>,
    certified: bool,
    caller: Caller,
) -> Result<Established<S>, SetupError>
where
    S: Boxable,
    <S as poll::Session>::SendStream: MaybeSync,
    <S as poll::Session>::RecvStream: MaybeSync,
{
    let mut handshake =
        node.server.accept_request(Instant::now(), linger::Session::new(session, node.role.subscribe())).await?;
    // Self-declared: enough to say when it is told to go.
    let purpose = match handshake.role() {
        Some(moq_net::Role::Publisher) => Purpose::Publish,
        Some(moq_net::Role::Subscriber) => Purpose::Subscribe,
        // Or something of a later version.
        None | Some(_) => Purpose::Both,
    };
    let target = if granted.is_some() { caller.path.clone() } else { handshake.path().to_owned() };
    let caller = caller.asking(&target, handshake.role());
    let admitted = match granted {
        _ if handshake.token().is_some() => Err(Refusal::Credential),
        Some(grant) => Ok(grant),
        None => node.rules.admit(handshake.path(), certified),
    };
    let scope = admitted
        .and_then(|grant| grant.pruned(handshake.role()))
        .and_then(|grant| Ok((grant.scope(&node.origin)?, grant)));
    let (scope, grant) = match scope {
        Ok(scope) => scope,
        Err(refusal) => {
            handshake.close(moq_net::Error::Unauthorized);
            return Err(refusal.into());
        }
    };
    // What the client may subscribe to is what we publish to it, and the other way round.
    if let Some(subscribe) = scope.subscribe {
        handshake = handshake.with_publisher(subscribe);
    }
    if let Some(publish) = scope.publish {
        handshake = handshake.with_subscriber(publish);
    }
    let handshake = handshake.with_stats(node.stats.session(grant.root()));
    let (session, driver) = handshake.ok().await?;
    tracing::debug!(version = %session.version(), root = grant.root(), standing = ?grant.standing(), "session accepted");
    let listed = node.directory.as_ref().map(|directory| directory.enter(caller));
    Ok(Established { session, driver, standing: grant.standing(), purpose, _listed: listed })
}
