//! Sessions over QUIC: WebTransport, and MoQ directly on QUIC.

use super::live::{self, Whereto};
use super::{Established, SetupError, handshake, within};
use crate::admission::Standing;
use crate::drain::Setup;
use crate::node::{Node, Tally};
use std::sync::Arc;
use std::time::{Duration, Instant};
use web_transport_quinn::http::StatusCode;
use web_transport_quinn::proto::ConnectResponse;
use web_transport_quinn::{Request, Session};

/// How long a refused client may take to read its refusal before the connection is closed under it.
const REFUSAL: Duration = Duration::from_secs(1);

/// Serves a connection from its first packet to its end.
pub(crate) async fn serve(incoming: quinn::Incoming, setup: Setup, node: Arc<Node>, tally: Arc<Tally>) {
    let remote = incoming.remote_address();
    // Boxed, so that an idle session does not hold on to the memory of its setup.
    let established = within(node.setup_timeout, &setup, Box::pin(establish(incoming, &node))).await;
    match established {
        Ok((established, whereto)) => {
            let _counted = tally.one();
            let open = setup.open(Instant::now(), established.purpose);
            live::run(established, open, whereto).await;
        }
        Err(error) => tracing::debug!(%remote, %error, "connection not accepted"),
    }
}

async fn establish(incoming: quinn::Incoming, node: &Node) -> Result<(Established<Session>, Whereto), SetupError> {
    let connection = incoming.accept()?.await?;
    let certified = connection.peer_identity().is_some();
    if !is_web_transport(&connection) {
        // Without an authority there is no URL.
        return Ok((handshake(node, Session::raw(connection), None, certified).await?, Whereto::Here));
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
    let url = request.url.clone();
    let session = request.respond(response).await?;
    let established = handshake(node, session, Some(grant), certified).await?;
    let whereto = match established.standing {
        Standing::Client => Whereto::Here,
        Standing::Peer => Whereto::Url(String::from(url).into_boxed_str()),
    };
    Ok((established, whereto))
}

/// Whether the TLS handshake chose HTTP/3, under which WebTransport runs.
fn is_web_transport(connection: &quinn::Connection) -> bool {
    connection
        .handshake_data()
        .and_then(|data| data.downcast::<quinn::crypto::rustls::HandshakeData>().ok())
        .and_then(|data| data.protocol)
        .is_some_and(|protocol| protocol == crate::tls::H3)
}
