//! This relay as a node of a cluster: the peers that it dials.

mod dialer;
pub mod hop;
mod link;
pub mod peer;
mod peers;

pub(crate) use peers::Peers;

use crate::config::Config;
use crate::node::Node;
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

/// How long a generation that replaces another one waits for its first dials.
const SETTLE: Duration = Duration::from_secs(3);

/// The links to all peers.
pub(crate) struct Cluster {
    links: JoinSet<()>,
    dialer: Option<Arc<Dialer>>,
    stop: watch::Sender<bool>,
    /// Open sessions of all links.
    pub(crate) peers: Arc<Peers>,
    /// Of each link: true when its first dial has come to something.
    settled: Vec<watch::Receiver<bool>>,
}

impl Cluster {
    /// Without peers.
    pub(crate) fn none() -> Self {
        Self {
            links: JoinSet::new(),
            dialer: None,
            stop: watch::Sender::new(false),
            peers: Arc::default(),
            settled: Vec::new(),
        }
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
        let dialer = Dialer::new(&config.connect, &config.quic, trust, node.origin.clone(), node.role.subscribe());
        let dialer = Arc::new(dialer.context("can't open a socket to dial peers from")?);
        let settings = Settings { reconnect: config.connect.reconnect, redirect: config.connect.redirect };
        for peer in &config.cluster.peers {
            let (settled, receiver) = watch::channel(false);
            cluster.settled.push(receiver);
            let link = Link {
                dialer: dialer.clone(),
                settings,
                peer: peer.clone(),
                token: token.cloned(),
                peers: cluster.peers.clone(),
                settled,
            };
            let orders =
                Orders { role: node.role.subscribe(), stop: cluster.stop.subscribe(), registry: node.registry.clone() };
            cluster.links.spawn(link.run(orders));
        }
        cluster.dialer = Some(dialer);
        Ok(cluster)
    }

    /// Waits until the first dial of every link has come to something, but not for long: a peer that is away must not keep
    /// a relay from replacing its predecessor. That one's links tell their peers to take from here what they can, as
    /// soon as this one is committed to; so its own had better be there.
    pub(crate) async fn settled(&mut self) {
        let all = async {
            for settled in &mut self.settled {
                // An error: the link has ended already.
                drop(settled.wait_for(|settled| *settled).await);
            }
        };
        if tokio::time::timeout(SETTLE, all).await.is_err() {
            tracing::warn!("not all peers have been reached yet: serving without them until they are");
        }
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
