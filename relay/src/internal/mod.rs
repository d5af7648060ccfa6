//! The operators' listener: plain HTTP, `/metrics` and `/health`, for a trusted network only.
//!
//! Its socket is shared by all generations, as that of every stream listener: the active one answers, for the node.

mod metrics;

use crate::node::Node;
use crate::stream::accepted;
use crate::supervise::Gauges;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use moq_tokio::accept::Health;
use protocol::child::Sender;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long after the role the first answer is given: by then the predecessor has stopped to answer, and what it showed last
/// has come here by way of the supervisor. Who asks meanwhile waits in the listener's queue.
const SETTLE: Duration = Duration::from_millis(250);

/// What the answers come from.
#[derive(Clone)]
pub(crate) struct Source {
    /// The node.
    pub(crate) node: Arc<Node>,
    /// What this process counts.
    pub(crate) gauges: Gauges,
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
        .layer(map_response(last))
        .with_state(source.clone());
    let mut role = source.node.role.subscribe();
    // The role comes a message earlier.
    source.node.stats.known().await;
    while role.wait_for(|role| role.accepts_streams()).await.is_ok() {
        tokio::time::sleep(SETTLE).await;
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

async fn metrics(State(Source { node, gauges, supervisor }): State<Source>) -> impl IntoResponse {
    let own = gauges.read();
    // The supervisor has it before anybody sees it: if this process is killed now, its successor begins from here, and no
    // total goes down.
    if let Some(supervisor) = supervisor {
        supervisor.stats(own.clone());
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::text(&node.stats.node(&own), &gauges.listeners))
}
