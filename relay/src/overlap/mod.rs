//! Links with the other live generations of this node.
//!
//! While generations overlap they are peers, as the nodes of a cluster are: a publisher that stays on one is seen by the
//! subscribers of all. Each link is one MoQ session over a socketpair of the supervisor's. It is nobody's connection: no
//! drain waits for it, no counter counts it, and it ends with the process at either end (`docs/design/overlap.md`).

mod link;

use crate::role::Role;
use moq_net::origin;
use protocol::message::Generation;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a starting relay waits for its links, all together. They take milliseconds; a generation that hangs must not
/// keep its successor from replacing it.
const ESTABLISH: Duration = Duration::from_secs(1);

/// How long the last frames may take to cross at the end of the process. `moq-net` itself gives up after a second.
const FLUSH: Duration = Duration::from_millis(500);

/// The links of this process.
pub(crate) struct Links {
    own: Generation,
    origin: origin::Producer,
    role: watch::Receiver<Role>,
    by_peer: BTreeMap<Generation, Running>,
    /// How many are up.
    up: watch::Sender<usize>,
}

struct Running {
    stage: watch::Receiver<Stage>,
    task: JoinHandle<()>,
}

/// How far a link is.
#[derive(Clone)]
enum Stage {
    Setup,
    Up(moq_net::Session),
    Over,
}

impl Links {
    /// Of this generation, whose broadcasts are in that origin and which has this role.
    pub(crate) fn new(own: Generation, origin: origin::Producer, role: watch::Receiver<Role>) -> Self {
        Self { own, origin, role, by_peer: BTreeMap::new(), up: watch::Sender::new(0) }
    }

    /// How many are up.
    pub(crate) fn up(&self) -> watch::Receiver<usize> {
        self.up.subscribe()
    }

    /// Peers with a generation over that end of a pair, in a task of its own. A link that is there already is replaced.
    pub(crate) fn add(&mut self, peer: Generation, stream: UnixStream) {
        self.by_peer.retain(|_, link| !link.task.is_finished());
        let (says, stage) = watch::channel(Stage::Setup);
        let (own, origin, role, up) = (self.own, self.origin.clone(), self.role.clone(), self.up.clone());
        let task = tokio::spawn(async move {
            match link::establish(own, peer, stream, origin, role).await {
                Ok((session, driver)) => {
                    tracing::info!(generation = %peer, version = %session.version(), "linked");
                    says.send_replace(Stage::Up(session));
                    up.send_modify(|up| *up += 1);
                    let end = driver.await;
                    up.send_modify(|up| *up -= 1);
                    // How it mostly ends: the process at the other end has gone.
                    tracing::debug!(generation = %peer, %end, "link closed");
                }
                Err(error) => tracing::warn!(generation = %peer, %error, "no link: its publishers are not seen here"),
            }
            says.send_replace(Stage::Over);
        });
        if let Some(before) = self.by_peer.insert(peer, Running { stage, task }) {
            before.task.abort();
        }
    }

    /// Waits until every link is up or has failed, for a bounded time.
    pub(crate) async fn established(&self) {
        let all = async {
            for link in self.by_peer.values() {
                let mut stage = link.stage.clone();
                drop(stage.wait_for(|stage| !matches!(stage, Stage::Setup)).await);
            }
        };
        if tokio::time::timeout(ESTABLISH, all).await.is_err() {
            tracing::warn!("not every link with another generation was up in time: going on without");
        }
    }

    /// Lets what is on its way to the other generations arrive, and closes the links.
    pub(crate) async fn close(self) {
        let closing = self.by_peer.into_values().map(|link| async move {
            let stage = link.stage.borrow().clone();
            if let Stage::Up(session) = stage {
                // Delivered, or not within the time: it ends in any case.
                drop(tokio::time::timeout(FLUSH, session.close()).await);
            }
            link.task.abort();
        });
        futures_util::future::join_all(closing).await;
    }

    /// With whom.
    pub(crate) fn peers(&self) -> Vec<Generation> {
        let up = self.by_peer.iter().filter(|(_, link)| matches!(*link.stage.borrow(), Stage::Up(_)));
        up.map(|(peer, _)| *peer).collect()
    }
}
