//! Sessions over a byte stream (TCP, unix socket), multiplexed by qmux.

use super::live::{self, Whereto};
use super::{Caller, Established, SetupError, Transport, handshake, within};
use crate::config::UnixAllow;
use crate::drain::Setup;
use crate::node::{Node, Tally};
use moq_net::web_transport_trait::Session as _;
use moq_tokio::transport::Session;
use qmux::transport::Stream as Framed;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixStream};

/// The wire format on a bare stream: there is no TLS handshake to negotiate it, so it is the one that today's clients
/// speak there.
const WIRE: qmux::Version = qmux::Version::QMux01;

/// An accepted stream.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// A unix socket, with who may connect.
    Unix(UnixStream, UnixAllow),
}

/// Serves a connection from its accept to its end.
pub(crate) async fn serve(stream: Stream, max_streams: u64, setup: Setup, node: Arc<Node>, tally: Arc<Tally>) {
    let established = within(node.setup_timeout, &setup, Box::pin(establish(stream, max_streams, &node))).await;
    match established {
        Ok(established) => {
            let _counted = tally.one();
            let open = setup.open(Instant::now(), established.purpose);
            live::run(established, open, Whereto::Here).await;
        }
        Err(error) => tracing::debug!(%error, "stream connection not accepted"),
    }
}

async fn establish(
    stream: Stream,
    max_streams: u64,
    node: &Node,
) -> Result<Established<Session<qmux::Session>>, SetupError> {
    let mut config = qmux::Config::new(WIRE);
    config.max_streams_bidi = max_streams;
    config.max_streams_uni = max_streams;
    config.protocol = qmux::Protocol::Negotiate(node.protocols.iter().map(|&protocol| protocol.to_owned()).collect());
    // Ours covers the whole setup.
    config.handshake_timeout = Duration::ZERO;
    let (session, caller) = match stream {
        Stream::Tcp(stream) => {
            let caller = Caller {
                remote: stream.peer_addr().ok(),
                local: stream.local_addr().ok(),
                ..Caller::over(Transport::Tcp)
            };
            // Without them the session measures for itself.
            let stats = qmux::TcpStats::new(&stream).ok();
            let framed = Framed::new(node.wires.hold(stream), WIRE, config.max_record_size);
            let framed = match stats {
                Some(stats) => framed.with_socket_stats(Arc::new(stats)),
                None => framed,
            };
            (qmux::Session::accept(framed, config).await?, caller)
        }
        Stream::Unix(stream, allow) => {
            let peer = stream.peer_cred()?;
            if !permits(&allow, peer.uid(), peer.gid(), peer.pid()) {
                return Err(SetupError::NotAllowed { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() });
            }
            let framed = Framed::new(node.wires.hold(stream), WIRE, config.max_record_size);
            (qmux::Session::accept(framed, config).await?, Caller::over(Transport::Unix))
        }
    };
    let caller = Caller { alpn: session.protocol().map(str::to_owned), ..caller };
    handshake(node, Session::new(session), None, false, caller).await
}

/// Whether each list that is not empty has the peer on it.
fn permits(allow: &UnixAllow, uid: u32, gid: u32, pid: Option<i32>) -> bool {
    (allow.uid.is_empty() || allow.uid.contains(&uid))
        && (allow.gid.is_empty() || allow.gid.contains(&gid))
        && (allow.pid.is_empty() || pid.is_some_and(|pid| allow.pid.contains(&pid)))
}

#[cfg(test)]
mod tests {
    use super::permits;
    use crate::config::UnixAllow;

    /// Lists restrict together; a process id that the kernel does not tell is on no list.
    #[test]
    fn every_list_that_is_not_empty_must_name_the_peer() {
        let allow = |uid: &[u32], gid: &[u32], pid: &[i32]| UnixAllow {
            uid: uid.to_vec(),
            gid: gid.to_vec(),
            pid: pid.to_vec(),
        };
        for (allow, permitted) in [
            (allow(&[], &[], &[]), true),
            (allow(&[7, 1], &[], &[]), true),
            (allow(&[7], &[], &[]), false),
            (allow(&[1], &[2], &[3]), true),
            (allow(&[1], &[7], &[3]), false),
            (allow(&[1], &[2], &[7]), false),
        ] {
            assert_eq!(permits(&allow, 1, 2, Some(3)), permitted, "{allow:?}");
        }
        assert!(!permits(&allow(&[], &[], &[3]), 1, 2, None));
        assert!(permits(&allow(&[1], &[], &[]), 1, 2, None));
    }
}
