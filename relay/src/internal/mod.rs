//! The operators' listener: plain HTTP, `/metrics` and `/health`, for a trusted network only.
//!
//! Its socket is shared by all generations, as that of every stream listener: the active one answers, for the node.

mod metrics;

use crate::node::Node;
use crate::supervise::Gauges;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use protocol::child::Sender;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

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

/// Serves while the relay's role says so; for ever. `open` has receivers while there are connections.
///
/// # Errors
/// The socket can't be used.
pub(crate) async fn serve(listener: std::net::TcpListener, source: Source, open: watch::Sender<()>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let router = axum::Router::new()
        .route("/health", get(async || "ok\n"))
        .route("/metrics", get(metrics))
        .with_state(source.clone());
    let mut role = source.node.role.subscribe();
    // The role comes a message earlier.
    source.node.stats.known().await;
    while role.wait_for(|role| role.accepts_streams()).await.is_ok() {
        tokio::time::sleep(SETTLE).await;
        if !role.borrow().accepts_streams() {
            continue;
        }
        let mut lost = role.clone();
        let until_lost = async move { drop(lost.wait_for(|role| !role.accepts_streams()).await) };
        let accepting = TcpListener::from_std(listener.try_clone()?)?;
        // Idle connections are closed with the role, so that whoever asks again reaches the successor. A task of its own: a
        // client that does not take its answer must not keep this relay from accepting when the role comes back.
        let serving = axum::serve(accepting, router.clone()).with_graceful_shutdown(until_lost);
        let open = open.subscribe();
        tokio::spawn(async move {
            let ended = serving.await;
            drop(open);
            ended
        });
        drop(role.wait_for(|role| !role.accepts_streams()).await);
    }
    Ok(())
}

async fn metrics(State(Source { node, gauges, supervisor }): State<Source>) -> impl IntoResponse {
    let own = gauges.read();
    // The supervisor has it before anybody sees it: if this process is killed now, its successor begins from here, and no
    // total goes down.
    if let Some(supervisor) = supervisor {
        supervisor.stats(own.clone());
    }
    let (totals, draining) = node.stats.node(&own);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::text(&totals, draining))
}
