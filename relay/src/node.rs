//! What every listener and worker of the process shares.

use crate::admission::Rules;
use crate::drain::Registry;
use crate::role::{Order, Role};
use crate::session::Directory;
use crate::stats::Stats;
use crate::stream::Wires;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The node: one origin, one set of rules, one registry of connections, one role.
pub(crate) struct Node {
    /// Who is connected.
    pub(crate) registry: Arc<Registry>,
    /// The role; each listener watches it.
    pub(crate) role: watch::Sender<Role>,
    /// Who may do what.
    pub(crate) rules: Rules,
    /// What passes through it, counted.
    pub(crate) stats: Arc<Stats>,
    /// The broadcasts of all sessions.
    pub(crate) origin: moq_net::origin::Producer,
    /// Accepts the versions of the settings.
    pub(crate) server: moq_net::Server,
    /// The application protocols of those versions.
    pub(crate) protocols: Vec<&'static str>,
    /// From the first packet to the end of the MoQ setup; `None`: for ever.
    pub(crate) setup_timeout: Option<Duration>,
    /// The byte streams that are open.
    pub(crate) wires: Wires,
    /// The sessions that are open, if there is anybody to tell.
    pub(crate) directory: Option<Arc<Directory>>,
}

impl Node {
    /// Carries out an order, and gives the role that follows.
    pub(crate) fn order(&self, order: Order) -> Role {
        let now = Instant::now();
        self.role.send_if_modified(|role| {
            let after = role.after(order, now);
            let changed = *role != after;
            *role = after;
            changed
        });
        *self.role.borrow()
    }
}

#[cfg(test)]
impl Node {
    /// An active node that admits nobody; its origin is driven on the runtime that must run.
    pub(crate) fn idle() -> Arc<Self> {
        let (origin, driver) = moq_net::origin::Producer::new(moq_net::origin::Config::default());
        tokio::spawn(moq_net::time::run(driver));
        let nothing = crate::config::Auth { publish: moq_net::Patterns::new(), subscribe: moq_net::Patterns::new() };
        let silent = crate::config::Stats {
            enabled: false,
            prefix: ".stats".into(),
            interval: Duration::from_secs(1),
            node: None,
        };
        Arc::new(Self {
            stats: Arc::new(Stats::new(&silent, false, true)),
            registry: Registry::new(),
            role: watch::Sender::new(Role::Active),
            rules: Rules::new(&nothing, None),
            origin,
            server: moq_net::Server::new(),
            protocols: Vec::new(),
            setup_timeout: None,
            wires: Wires::default(),
            directory: None,
        })
    }
}

/// The open sessions of one listener or worker, for the snapshot.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    /// Counts one until the guard is dropped.
    pub(crate) fn one(self: &Arc<Self>) -> TallyGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        TallyGuard(self.clone())
    }

    /// How many are open now.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One counted session.
#[derive(Debug)]
pub(crate) struct TallyGuard(Arc<Tally>);

impl Drop for TallyGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
