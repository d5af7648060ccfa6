//! Sessions over QUIC: WebTransport, and MoQ directly on QUIC.

use super::live::{self, Whereto};
use super::{Caller, Certificate, Established, SetupError, Transport, handshake, within};
use crate::admission::Standing;
use crate::drain::Setup;
use crate::node::{Node, Tally};
use moq_tokio::tls::PeerIdentity;
use quinn::crypto::rustls::HandshakeData;
use rustls::pki_types::CertificateDer;
use std::sync::Arc;
use std::time::{Duration, Instant};
use web_transport_quinn::http::StatusCode;
use web_transport_quinn::proto::ConnectResponse;
use web_transport_quinn::{Request, Session};

/// How long a refused client may take to read its refusal before the connection is closed under it.
const REFUSAL: Duration = Duration::from_secs(1);

/// Serves a connection from its first packet to its end. `port` is the one that it came to.
pub(crate) async fn serve(incoming: quinn::Incoming, port: u16, setup: Setup, node: Arc<Node>, tally: Arc<Tally>) {
    let remote = incoming.remote_address();
    // Boxed, so that an idle session does not hold on to the memory of its setup.
    let established = within(node.setup_timeout, &setup, Box::pin(establish(incoming, port, &node))).await;
    match established {
        Ok((established, whereto)) => {
            let _counted = tally.one();
            let open = setup.open(Instant::now(), established.purpose);
            live::run(established, open, whereto).await;
        }
        Err(error) => tracing::debug!(%remote, %error, "connection not accepted"),
    }
}

async fn establish(
    incoming: quinn::Incoming,
    port: u16,
    node: &Node,
) -> Result<(Established<Session>, Whereto), SetupError> {
    let connection = incoming.accept()?.await?;
    let certified = connection.peer_identity().is_some();
    let negotiated = negotiated(&connection);
    let mut caller = caller(&connection, port);
    caller.server_name = negotiated.as_ref().and_then(|negotiated| negotiated.server_name.clone());
    let protocol = negotiated.and_then(|negotiated| negotiated.protocol);
    // WebTransport runs under HTTP/3.
    if protocol.as_deref() != Some(crate::tls::H3) {
        caller.alpn = protocol.and_then(|protocol| String::from_utf8(protocol).ok());
        // Without an authority there is no URL.
        return Ok((handshake(node, Session::raw(connection), None, certified, caller).await?, Whereto::Here));
    }
    let request = Request::accept(connection).await?;
    let target = match request.url.query() {
        Some(query) => format!("{}?{query}", request.url.path()),
        None => request.url.path().to_owned(),
    };
    let grant = match node.rules.admit(&target, certified) {
        Ok(grant) => grant,
        Err(refusal) => {
            let connection = request.conn().clone();
            request.reject(StatusCode::UNAUTHORIZED).await?;
            // The last handle closes the connection, and with it the response on its way.
            drop(tokio::time::timeout(REFUSAL, connection.closed()).await);
            return Err(refusal.into());
        }
    };
    let chosen = request.protocols.iter().find(|offered| node.protocols.contains(&offered.as_str()));
    let response = match chosen {
        Some(protocol) => ConnectResponse::OK.with_protocol(protocol.clone()),
        // Versions that negotiate in their SETUP come without a protocol.
        None => ConnectResponse::OK,
    };
    caller.alpn = chosen.cloned();
    let url = request.url.clone();
    url.path().clone_into(&mut caller.path);
    caller.server_name = caller.server_name.or_else(|| url.host_str().map(str::to_owned));
    let session = request.respond(response).await?;
    let established = handshake(node, session, Some(grant), certified, caller).await?;
    let whereto = match established.standing {
        Standing::Client => Whereto::Here,
        Standing::Peer => Whereto::Url(String::from(url).into_boxed_str()),
    };
    Ok((established, whereto))
}

/// What the connection says of its client.
fn caller(connection: &quinn::Connection, port: u16) -> Caller {
    let chain = connection.peer_identity().and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok());
    Caller {
        remote: Some(connection.remote_address()),
        local: connection.local_ip().map(|ip| (ip, port).into()),
        tls: chain.and_then(|chain| Certificate::of(&PeerIdentity::from_chain(*chain))),
        ..Caller::over(Transport::Quic)
    }
}

/// What the TLS handshake chose.
fn negotiated(connection: &quinn::Connection) -> Option<HandshakeData> {
    Some(*connection.handshake_data()?.downcast::<HandshakeData>().ok()?)
}
