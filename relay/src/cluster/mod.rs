//! This relay as a node of a cluster: the peers that it dials.

mod dialer;
pub mod hop;
mod link;
pub mod peer;

use crate::config::Config;
use crate::node::{Node, Tally};
use crate::tls::Trust;
use anyhow::Context;
use dialer::Dialer;
use link::{Link, Orders, Settings};
use peer::Token;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long the last packets of closed links may take.
const FLUSH: Duration = Duration::from_millis(500);

/// The links to all peers.
pub(crate) struct Cluster {
    links: JoinSet<()>,
    dialer: Option<Arc<Dialer>>,
    stop: watch::Sender<bool>,
    /// Open sessions of all links.
    pub(crate) tally: Arc<Tally>,
}

impl Cluster {
    /// Without peers.
    pub(crate) fn none() -> Self {
        Self { links: JoinSet::new(), dialer: None, stop: watch::Sender::new(false), tally: Arc::default() }
    }

    /// Begins to dial every peer of the settings, on the runtime that calls this.
    ///
    /// # Errors
    /// TLS can't be set up as the settings say, or the socket can't be bound.
    pub(crate) fn start(config: &Config, token: Option<&Token>, node: &Node) -> anyhow::Result<Self> {
        let mut cluster = Self::none();
        if config.cluster.peers.is_empty() {
            return Ok(cluster);
        }
        let trust = Trust::load(&config.connect.tls).context("can't set up TLS for peers")?;
        let dialer = Dialer::new(&config.connect, &config.quic, trust, node.origin.clone());
        let dialer = Arc::new(dialer.context("can't open a socket to dial peers from")?);
        let settings = Settings { reconnect: config.connect.reconnect, redirect: config.connect.redirect };
        for peer in &config.cluster.peers {
            let link = Link {
                dialer: dialer.clone(),
                settings,
                peer: peer.clone(),
                token: token.cloned(),
                tally: cluster.tally.clone(),
            };
            let orders = Orders { role: node.role.subscribe(), stop: cluster.stop.subscribe() };
            cluster.links.spawn(link.run(orders));
        }
        cluster.dialer = Some(dialer);
        Ok(cluster)
    }

    /// Closes every link and waits until that is on the wire.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.links.join_next().await.is_some() {}
        if let Some(dialer) = &self.dialer {
            dialer.flush(FLUSH).await;
        }
    }
}

/// Reads the token of `--cluster-token`.
///
/// # Errors
/// The file can't be read, or is empty.
pub(crate) fn token(path: &Path) -> anyhow::Result<Token> {
    let name = || format!("can't read the cluster token in {}", path.display());
    let text = zeroize::Zeroizing::new(std::fs::read_to_string(path).with_context(name)?);
    Token::new(&text).with_context(|| format!("the cluster token in {} is empty; put one there", path.display()))
}
