//! Counting in turn: reading the registry, the other generations, and writing what follows.

use super::Stats;
use super::frames::Frames;
use super::peers::{self, Peers};
use super::publish::Published;
use crate::config;
use moq_net::origin;
use moq_net::stats::Report;
use protocol::message::Generation;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

/// What a publishing task needs.
pub(crate) struct Publishing {
    /// The settings.
    pub(crate) settings: config::Stats,
    /// The counters.
    pub(crate) stats: Arc<Stats>,
    /// Where it publishes.
    pub(crate) origin: origin::Producer,
    /// Which generation this is.
    pub(crate) generation: Generation,
    /// What only the generations of this node know.
    pub(crate) token: String,
    /// How many links with other generations there are.
    pub(crate) links: watch::Receiver<usize>,
}

/// How often to look again whether the other generations' rows have come.
const AGAIN: Duration = Duration::from_millis(20);

/// What is on the air.
#[derive(Default)]
struct OnAir {
    /// The node's statistics, while this process speaks.
    node: Option<Published>,
    /// This process's own, while somebody lives beside it.
    own: Option<Own>,
}

struct Own {
    _broadcast: moq_net::broadcast::Producer,
    frames: moq_json::snapshot::Producer<Frames>,
}

/// Publishes for ever.
pub(crate) async fn publish(publishing: Publishing) {
    let Publishing { settings, stats, origin, generation, token, mut links } = publishing;
    let node = match &settings.node {
        Some(node) => format!("{}/node/{node}", settings.prefix),
        None => format!("{}/node", settings.prefix),
    };
    let private = peers::path(&token, generation);
    let mut peers = Peers::new(origin.consume().with_hidden(true), token);
    let mut others = stats.others.subscribe();
    let mut ticker = tokio::time::interval(settings.interval);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut report = Report::default();
    let mut carried = Frames::default();
    let mut on_air = OnAir::default();
    let (mut speaks, mut live) = (false, BTreeSet::new());
    // Without the rows of the others the node's would drop when another one begins to speak. One that can't be read must not
    // silence the node.
    let mut patient_until = None;
    loop {
        let holds_back = speaks && on_air.node.is_none();
        tokio::select! {
            _ = ticker.tick() => {}
            // At once, so that the node is not without statistics for the time of an interval, nor its rows incomplete.
            changed = others.wait_for(|others| others.speaks != speaks || !others.are(&live)) => {
                if changed.is_err() { return }
            }
            changed = links.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(AGAIN), if holds_back => {}
        }
        (speaks, live) = {
            let others = others.borrow_and_update();
            (others.speaks, others.generations().collect())
        };
        stats.registry.report(&mut report);
        let own = Frames::of(&report);
        let gone = peers.follow(&live);
        if speaks {
            carried.add(&gone);
        }
        let mut all = peers.frames();
        all.add(&own);
        carried.keep(&all);
        all.add(&carried);
        let mut own = own;
        own.add(&carried);
        patient_until = speaks.then(|| patient_until.unwrap_or_else(|| Instant::now() + settings.interval));
        let begins = patient_until.is_some_and(|until| peers.complete() || until <= Instant::now());
        on_air.node = on_air.node.filter(|_| speaks).or_else(|| begins.then(|| begin(&origin, &node)).flatten());
        if let Some(published) = &mut on_air.node
            && let Err(error) = published.write(&all)
        {
            tracing::warn!(%error, "failed to publish the node's statistics");
        }
        let beside = *links.borrow() > 0;
        on_air.own = on_air.own.filter(|_| beside).or_else(|| beside.then(|| begin_own(&origin, &private)).flatten());
        if let Some(Own { frames, .. }) = &mut on_air.own
            && let Err(error) = frames.update(&own)
        {
            tracing::warn!(%error, "failed to publish this generation's statistics");
        }
    }
}

fn begin(origin: &origin::Producer, path: &str) -> Option<Published> {
    let published = Published::new(origin, path);
    published.inspect_err(|error| tracing::warn!(path, %error, "failed to publish the node's statistics")).ok()
}

fn begin_own(origin: &origin::Producer, path: &str) -> Option<Own> {
    let begun = origin.publish(path, origin::Route::default()).and_then(|broadcast| {
        let track = broadcast.create_track(peers::TRACK, None)?;
        let frames = moq_json::snapshot::Producer::new(track, moq_json::snapshot::Config::default());
        Ok(Own { _broadcast: broadcast, frames })
    });
    begun.inspect_err(|error| tracing::warn!(path, %error, "failed to publish this generation's statistics")).ok()
}
