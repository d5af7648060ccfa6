//! The operators' listener: plain HTTP for a trusted network only. `/metrics` and `/health` speak for the node, `/nodes` and
//! `/sessions` for this process.
//!
//! Its socket is shared by all generations, as that of every stream listener: the active one answers, for the node.

mod filter;
mod metrics;

use crate::cluster::Peers;
use crate::node::Node;
use crate::session::Entry;
use crate::stream::accepted;
use crate::supervise::Gauges;
use axum::extract::State;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use filter::Filter;
use moq_tokio::accept::Health;
use protocol::child::Sender;
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long after the role the first answer is given at the latest. Normally that is when the supervisor says that the
/// predecessor has stopped answering, with what it showed last; one that hangs must not silence the node. Who asks meanwhile
/// waits in the listener's queue.
const SETTLE: Duration = Duration::from_secs(1);

/// What the answers come from.
#[derive(Clone)]
pub(crate) struct Source {
    /// The node.
    pub(crate) node: Arc<Node>,
    /// What this process counts.
    pub(crate) gauges: Gauges,
    /// The peers that it has dialed.
    pub(crate) peers: Arc<Peers>,
    /// The supervisor, if there is one.
    pub(crate) supervisor: Option<Sender>,
}

/// Serves while the relay's role says so; for ever.
///
/// # Errors
/// The socket can't be used.
pub(crate) async fn serve(listener: std::net::TcpListener, health: Health, source: Source) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let router = axum::Router::new()
        .route("/health", get(async || "ok\n"))
        .route("/metrics", get(metrics))
        .route("/nodes", get(nodes))
        .route("/sessions", get(sessions))
        .route("/sessions/revalidate", post(async || (StatusCode::NOT_IMPLEMENTED, NOTHING_TO_REVALIDATE)))
        .layer(map_response(last))
        .with_state(source.clone());
    let mut role = source.node.role.subscribe();
    // The role comes a message earlier.
    source.node.stats.known().await;
    while role.wait_for(|role| role.accepts_streams()).await.is_ok() {
        if tokio::time::timeout(SETTLE, source.node.stats.settled()).await.is_err() {
            tracing::warn!("answering operators, although another generation has not said that it does so no more");
        }
        if !role.borrow().accepts_streams() {
            continue;
        }
        let accepting = Accepting { listener: TcpListener::from_std(listener.try_clone()?)?, health: health.clone() };
        tokio::select! {
            biased;
            // Ends the accepting alone: each connection is a task, and whoever got through is answered.
            lost = role.wait_for(|role| !role.accepts_streams()) => if lost.is_err() { break },
            ended = axum::serve(accepting, router.clone()).into_future() => return ended,
        }
    }
    Ok(())
}

/// The listener, which says how it is.
struct Accepting {
    listener: TcpListener,
    health: Health,
}

impl axum::serve::Listener for Accepting {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        accepted(&self.health, || self.listener.accept()).await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// No connection outlives its answer: a scraper that kept one would go on asking a process that has lost the role.
async fn last(mut answer: Response) -> Response {
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

async fn metrics(State(Source { node, gauges, supervisor, peers: _ }): State<Source>) -> impl IntoResponse {
    let own = gauges.show(supervisor.as_ref());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::text(&node.stats.node(&own), &gauges.listeners))
}

/// The answer where moq-relay 0.17 has its auth server asked again about sessions.
const NOTHING_TO_REVALIDATE: &str =
    "nothing to revalidate: sessions are admitted by the settings of their generation; change those and upgrade\n";

async fn nodes(State(Source { peers, .. }): State<Source>) -> Response {
    json(&peers.nodes())
}

/// The open sessions that match a filter.
#[derive(Serialize)]
struct Sessions {
    sessions: Vec<Entry>,
}

async fn sessions(uri: Uri, State(Source { node, .. }): State<Source>) -> Response {
    match Filter::parse(uri.query().unwrap_or_default()) {
        Ok(filter) => {
            let listed = node.directory.as_ref().map(|directory| directory.list(|session| filter.matches(session)));
            json(&Sessions { sessions: listed.unwrap_or_default() })
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
