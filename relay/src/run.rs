//! The startup order.

use crate::admission::Rules;
use crate::cluster::hop::hop;
use crate::cluster::peer::Token;
use crate::cluster::{self, Cluster};
use crate::config::{Config, UnixAllow};
use crate::control::{Control, SIGNALS, Stop};
use crate::drain::Registry;
use crate::log::Logging;
use crate::node::{Node, Tally};
use crate::overlap::Links;
use crate::role::Role;
use crate::session::Directory;
use crate::sockets::{ALONE, INTERNAL, Sockets, TCP, UNIX};
use crate::stats::{self, Stats};
use crate::stream::{self, Listener, Wires};
use crate::supervise::{self, Gauges, Inbox, Link, report};
use crate::tls::{KEEP, Tls};
use crate::worker::{Shared, Workers};
use crate::{cache, internal, log, quic, tls};
use anyhow::Context;
use futures_util::StreamExt;
use moq_net::origin;
use moq_tokio::accept::Health;
use nix::libc::{SIGINT, SIGTERM};
use protocol::child::{Sender, Socket, Unadopted};
use protocol::message::Generation;
use signal_hook_tokio::Signals;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;

/// Runs the relay until it has been stopped or is no longer needed.
///
/// The order, and why it is this one:
///
/// 1. The crypto provider, and the supervisor's channel from the environment: while there is one thread.
/// 2. Logging and the main runtime; signals are handled from here on, so that none kills a relay that is starting.
/// 3. The sockets: adopted from the supervisor (`hello`, `adopt`), or bound here. A relay that can't have its addresses
///    ends before it has made anything else.
/// 4. TLS, with the certificate that an earlier generation generated, if there is one.
/// 5. The origin and the links with older generations and with peers, then the workers, all at the same time: each accepts
///    as soon as it runs.
/// 6. `ready`, when every worker accepts and the links between generations are up. The stream listeners open with the active
///    role; alone, that is now.
/// 7. Orders and signals until the end.
///
/// # Errors
/// What kept it from serving, or a worker that died: one line, for exit status 1.
pub fn run(config: &Config) -> anyhow::Result<()> {
    tls::install_provider();
    let channel = protocol::child::from_env().context("can't use the supervisor's channel")?;
    let logging = log::init(&config.log);
    let runtime = main_runtime(config).context("can't start the main runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::new(SIGNALS).context("can't handle signals")?;
        let control = tokio::select! {
            biased;
            control = start(config, channel, &logging) => control?,
            () = asked_to_end(&mut signals) => return Ok(()),
        };
        control.serve(signals).await
    })
}

/// Waits for a signal to end. A relay that has not begun to serve has nobody to drain.
async fn asked_to_end(signals: &mut Signals) {
    while let Some(signal) = signals.next().await {
        if [SIGTERM, SIGINT].contains(&signal) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Steps 3 to 6. A supervisor that has adopted this relay hears why it can't serve.
async fn start(config: &Config, channel: Option<Unadopted>, logging: &Logging) -> anyhow::Result<Control> {
    let Some(channel) = channel else {
        return assemble(config, Sockets::bind(config)?, None).await;
    };
    let (sockets, sender, receiver) = Sockets::adopt(channel, config).await?;
    if let Some(generation) = sockets.generation {
        logging.is(generation);
    }
    let control = assemble(config, sockets, Some((sender.clone(), Inbox::new(receiver)))).await;
    if let Err(error) = &control {
        sender.failed(&format!("{error:#}"));
    }
    control
}

/// One thread is enough for orders, the origin and its routes. Stream sessions and links to peers run here too, and get a
/// pool.
fn main_runtime(config: &Config) -> std::io::Result<tokio::runtime::Runtime> {
    let streams = config.listen.tcp.is_some() || config.listen.unix.is_some();
    let mut builder = if streams || !config.cluster.peers.is_empty() {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    builder.enable_all().thread_name("main").build()
}

/// Steps 4 to 6.
async fn assemble(
    config: &Config,
    sockets: Sockets,
    mut supervisor: Option<(Sender, Inbox)>,
) -> anyhow::Result<Control> {
    let Sockets { generation, endpoints, keys, listeners, kept, spread, links: promised, own } = sockets;
    let (tls, keep) = match &config.listen.quic {
        Some(quic) => {
            let kept = kept.get(KEEP).map(|kept| kept.as_slice());
            let loaded = Tls::load(&quic.tls, &config.listen.versions, &keys.tickets, kept, SystemTime::now())?;
            (Some(loaded.tls), loaded.keep)
        }
        None => (None, None),
    };

    let role = if supervisor.is_some() { Role::Ready } else { Role::Active };
    let token = config.cluster.token.as_deref().map(cluster::token).transpose()?;
    let node = node(config, generation, token.clone(), role)?;
    let mut links = Links::new(generation.unwrap_or(ALONE), node.origin.clone(), node.role.subscribe());
    if let Some((_, inbox)) = &mut supervisor {
        // Early: by the time the workers accept, what the others publish is known here.
        for (peer, stream) in inbox.links(promised).await {
            links.add(peer, stream);
        }
    }
    let mut cluster = Cluster::start(config, token.as_ref(), &node)?;
    let mut workers = Workers::none();
    let mut streams = Vec::new();
    let mut internal_listener = None;
    let mut healths = Vec::new();
    for protocol::child::Listener { name, address, socket } in listeners {
        let mut health = |name| {
            let health = Health::new(name);
            healths.push(health.clone());
            health
        };
        match socket {
            Socket::Quic(members) => {
                let (Some(settings), Some(tls)) = (&config.listen.quic, &tls) else { continue };
                let server = quic::server_config(tls.server_config(), &config.quic, settings)
                    .context("the TLS configuration can't do QUIC")?;
                let shared = Shared { node: node.clone(), endpoints: endpoints.clone(), server };
                workers = Workers::start(members, config.runtime.pin, &shared).await?;
                let certificate = tls.fingerprints().join(",");
                tracing::info!(%address, workers = workers.each().len(), %certificate, "listening for QUIC");
            }
            // With the workers, whose counters it shows.
            Socket::Tcp(listener) if name == INTERNAL => {
                internal_listener = Some((address, health(INTERNAL), listener));
            }
            Socket::Tcp(listener) => {
                if !listener.local_addr()?.ip().is_loopback() {
                    tracing::warn!(%address, "TCP sessions are neither encrypted nor authenticated: keep it private");
                }
                streams.push(open(&address, Listener::tcp(listener)?, health(TCP), config, &node));
            }
            Socket::Unix(listener) => {
                let allow = config.listen.unix.as_ref().map_or_else(UnixAllow::default, |unix| unix.allow.clone());
                streams.push(open(&address, Listener::unix(listener, allow)?, health(UNIX), config, &node));
            }
        }
    }

    let members = workers.each().iter().map(|worker| worker.counters.clone()).collect();
    let gauges = Gauges {
        stats: node.stats.clone(),
        registry: node.registry.clone(),
        members,
        listeners: healths,
        frozen: Arc::default(),
    };
    let operators = internal_listener.is_some();
    if let Some((address, health, listener)) = internal_listener {
        let supervisor = supervisor.as_ref().map(|(sender, _)| sender.clone());
        let source =
            internal::Source { node: node.clone(), gauges: gauges.clone(), peers: cluster.peers.clone(), supervisor };
        tracing::info!(%address, "serving operators");
        tokio::spawn(internal::serve(listener, health, source));
    }
    if config.stats.enabled {
        tokio::spawn(stats::publish(stats::Publishing {
            settings: config.stats.clone(),
            stats: node.stats.clone(),
            origin: node.origin.clone(),
            generation: generation.unwrap_or(ALONE),
            token: stats::token(&keys.cid),
            links: links.up(),
        }));
    }
    let link = match supervisor {
        Some((sender, receiver)) => {
            if let Some(keep) = keep {
                supervise::keep(&sender, KEEP, &keep);
            }
            if promised > 0 {
                tokio::join!(links.established(), cluster.settled());
            }
            sender.ready();
            tokio::spawn(report(sender.clone(), gauges.clone()));
            Link::Up { sender, receiver, gauges }
        }
        None => Link::Down,
    };
    Ok(Control {
        node,
        workers,
        streams,
        cluster,
        own,
        tls,
        drain_timeout: config.drain_timeout,
        drain_spread: spread.or(config.drain_spread),
        endpoints,
        link,
        links,
        operators,
        stop: Stop::default(),
        last_call: None,
    })
}

/// The origin, with its driver on this runtime, and what sessions need beside it.
fn node(
    config: &Config,
    generation: Option<Generation>,
    token: Option<Token>,
    role: Role,
) -> anyhow::Result<Arc<Node>> {
    let cache = cache::pool(&config.cache).context("can't size the cache")?;
    let hop = hop(config.cluster.id, generation);
    tracing::debug!(hop = hop.id(), "hop id");
    let mut settings = origin::Config::new(hop);
    settings.max_hops = config.cluster.max_hops;
    settings.pool = cache.pool;
    settings.cache_duration = cache.duration;
    let (origin, driver) = origin::Producer::new(settings);
    tokio::spawn(moq_net::time::run(driver));
    let versions = config.listen.versions.clone();
    Ok(Arc::new(Node {
        stats: Arc::new(Stats::new(&config.stats, config.internal.is_some(), role == Role::Active)),
        registry: Registry::new(),
        role: watch::Sender::new(role),
        rules: Rules::new(&config.auth, token),
        origin,
        protocols: versions.alpns(),
        server: moq_net::Server::new().with_versions(versions),
        setup_timeout: config.listen.timeout,
        wires: Wires::default(),
        directory: config.internal.is_some().then(|| {
            // As in moq-relay 0.17, which falls back on the node's URL; that may have a credential in it.
            let name = config.stats.node.as_ref().map(|name| name.as_str().to_owned());
            Directory::new(name.unwrap_or_default())
        }),
    }))
}

fn open(
    address: &str,
    listener: Listener,
    health: Health,
    config: &Config,
    node: &Arc<Node>,
) -> (&'static str, Arc<Tally>) {
    let tally = Arc::new(Tally::default());
    let name = health.listener();
    tokio::spawn(stream::serve(listener, health, config.quic.max_streams, node.clone(), tally.clone()));
    tracing::info!(%address, "listening for {name} sessions");
    (name, tally)
}
