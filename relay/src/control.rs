//! What the running relay does when something happens to it: signals, orders of the supervisor, a worker's end.

use crate::cluster::Cluster;
use crate::drain::{Registry, sleep_until};
use crate::node::{Node, Tally};
use crate::overlap::Links;
use crate::role::Order;
use crate::sockets::Own;
use crate::supervise::{self, Link};
use crate::tls::{CHECK_INTERVAL, KEEP, Tls};
use crate::worker::{Ended, Workers};
use futures_util::StreamExt;
use nix::libc::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use protocol::child::Command;
use protocol::quinn::Endpoints;
use signal_hook_tokio::Signals;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The signals that the relay handles.
pub(crate) const SIGNALS: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGUSR1];

/// How far the operator's signals have got. A `drain` of the supervisor and a signal are one stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stop {
    /// None yet.
    #[default]
    NotAsked,
    /// One: drain. Another one ends at once.
    Asked,
}

/// What happened.
enum Event {
    Signal(i32),
    Command(Command),
    /// The supervisor is gone for good.
    Orphaned,
    WorkerEnded(Ended),
    /// A drain is over: everybody has left or was closed.
    Drained,
    CheckTls,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Serve,
    End,
}

/// The running relay.
pub(crate) struct Control {
    pub(crate) node: Arc<Node>,
    pub(crate) workers: Workers,
    /// The stream listeners' open sessions, by listener name.
    pub(crate) streams: Vec<(&'static str, Arc<Tally>)>,
    /// The links to peers.
    pub(crate) cluster: Cluster,
    /// The sockets, when they are this process's own.
    pub(crate) own: Option<Own>,
    pub(crate) tls: Option<Tls>,
    pub(crate) drain_timeout: Duration,
    pub(crate) drain_spread: Option<Duration>,
    pub(crate) endpoints: Endpoints,
    pub(crate) link: Link,
    /// The other generations.
    pub(crate) links: Links,
    /// Operators are answered.
    pub(crate) operators: bool,
    pub(crate) stop: Stop,
    /// When a drain that finds nobody may end.
    pub(crate) last_call: Option<Instant>,
}

impl Control {
    /// Serves until a stop has been carried out.
    ///
    /// # Errors
    /// A worker died.
    pub(crate) async fn serve(mut self, mut signals: Signals) -> anyhow::Result<()> {
        let mut check = tokio::time::interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        check.reset();
        loop {
            let event = tokio::select! {
                biased;
                ended = self.workers.ended() => Event::WorkerEnded(ended),
                Some(signal) = signals.next() => Event::Signal(signal),
                command = self.link.next() => command.map_or(Event::Orphaned, Event::Command),
                () = drained(&self.node.registry, self.last_call) => Event::Drained,
                _ = check.tick(), if self.tls.is_some() => Event::CheckTls,
            };
            match self.handle(event) {
                Ok(Next::Serve) => {}
                Ok(Next::End) => break,
                Err(error) => {
                    self.link.failed(&format!("{error:#}"));
                    return Err(error);
                }
            }
        }
        self.end().await;
        Ok(())
    }

    fn handle(&mut self, event: Event) -> anyhow::Result<Next> {
        match event {
            Event::Signal(signal) => return Ok(self.signal(signal)),
            Event::Command(command) => self.command(command),
            Event::Orphaned => {
                tracing::warn!("the supervisor is gone: draining");
                self.drain(self.drain_timeout, self.drain_spread);
            }
            // Nobody has told it to: whatever it says, its clients are lost and its socket is deaf.
            Event::WorkerEnded(ended) => return Err(ended.into()),
            Event::Drained => return Ok(Next::End),
            Event::CheckTls => {
                if let Some(renewed) = self.tls.as_ref().and_then(|tls| tls.check(SystemTime::now())) {
                    self.link.keep(KEEP, &renewed);
                }
            }
        }
        Ok(Next::Serve)
    }

    fn signal(&mut self, signal: i32) -> Next {
        match (signal, self.stop) {
            (SIGTERM | SIGINT, Stop::NotAsked) => {
                self.stop = Stop::Asked;
                self.drain(self.drain_timeout, self.drain_spread);
            }
            (SIGTERM | SIGINT, Stop::Asked) => {
                tracing::info!("second signal: ending at once");
                return Next::End;
            }
            (SIGHUP, _) => self.reload(),
            // SIGNALS has no other.
            _ => self.snapshot(),
        }
        Next::Serve
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Activate { seq } => {
                self.link.thaw();
                self.order(Order::Activate, seq);
            }
            Command::Standby { seq } => {
                self.node.order(Order::Standby);
                self.step_back();
                self.order(Order::Standby, seq);
            }
            Command::Canary { seq, permille } => self.order(Order::Canary { permille }, seq),
            Command::Drain { seq, timeout, spread } => {
                self.drain(timeout, spread.or(self.drain_spread));
                self.step_back();
                self.link.ack(seq);
            }
            Command::Undrain { seq } => {
                self.last_call = None;
                self.node.registry.undrain();
                self.link.thaw();
                self.order(Order::Undrain, seq);
            }
            Command::Alone => tracing::debug!("this is the only generation left"),
            Command::Reload => self.reload(),
            Command::Gro { on } => tracing::debug!(on, "the supervisor has set UDP_GRO"),
            Command::Heir(dead) => supervise::inherit(&self.endpoints, dead),
            Command::Link { generation, stream } => self.links.add(generation, stream),
            Command::Counters { speaks, settled, generations, gone } => {
                self.node.stats.told(speaks, settled, generations, gone);
            }
        }
    }

    /// Another generation answers for the node from now on, with what this one has shown: that is said before this is
    /// acknowledged.
    fn step_back(&self) {
        self.node.stats.unsettled();
        self.link.freeze();
    }

    fn order(&self, order: Order, seq: u64) {
        let role = self.node.order(order);
        tracing::info!(role = role.name(), "role");
        self.link.ack(seq);
    }

    fn drain(&mut self, timeout: Duration, spread: Option<Duration>) {
        let now = Instant::now();
        self.last_call.get_or_insert(now + LAST_CALL);
        let switched = self.node.role.borrow().switched();
        let dialed = self.cluster.peers.sessions() > 0;
        // Before the role: the links to peers ask the registry when that has changed.
        let begun = self.node.registry.drain(now, timeout, spread, switched, dialed);
        self.node.order(Order::Drain);
        self.node.stats.drains();
        if let Some(clamped) = begun.clamped {
            tracing::warn!(
                "a spread of {} does not fit a drain timeout of {}: GOAWAYs are spread over {}, 80 % of it",
                humantime::format_duration(clamped.asked),
                humantime::format_duration(timeout),
                humantime::format_duration(clamped.used),
            );
        }
        let setup = self.node.registry.counts().setup;
        tracing::info!(sessions = begun.sessions, setup, timeout = %humantime::format_duration(timeout), "draining");
    }

    fn reload(&self) {
        match self.tls.as_ref().map(Tls::reload) {
            Some(Ok(())) => tracing::info!("certificates reloaded"),
            Some(Err(error)) => tracing::error!(%error, "failed to reload certificates: those before are served on"),
            None => {}
        }
    }

    fn snapshot(&self) {
        let counts = self.node.registry.counts();
        let linked = self.links.peers();
        tracing::info!(role = self.node.role.borrow().name(), ?counts, ?linked, "snapshot");
        for worker in self.workers.each() {
            tracing::info!(
                member = worker.member.get(),
                sessions = worker.tally.get(),
                foreign = worker.counters.foreign(),
                "snapshot of a worker"
            );
        }
        tracing::info!(sessions = self.cluster.peers.sessions(), "snapshot of the links to peers");
        for (listener, tally) in &self.streams {
            tracing::info!(listener, sessions = tally.get(), "snapshot of a listener");
        }
    }

    /// Closes what is left and waits, for a bounded time, until the closes are on the wire.
    async fn end(self) {
        let before = self.node.registry.counts();
        if before.sessions + before.setup > 0 {
            // The second signal: every session's task closes it now.
            self.node.registry.drain(Instant::now(), Duration::ZERO, None, None, false);
            drop(tokio::time::timeout(CLOSE, self.node.registry.drained()).await);
        }
        let forced = self.node.registry.counts().forced;
        self.link.last_stats();
        tokio::join!(self.workers.stop(), self.cluster.stop());
        self.links.close().await;
        drop(self.own);
        // A peer that takes nothing is not waited for longer.
        drop(tokio::time::timeout(CLOSE, self.node.wires.closed()).await);
        if self.operators {
            // axum writes an answer in a task of its own, which nothing lets us wait for.
            tokio::time::sleep(ANSWER).await;
        }
        if forced == 0 {
            tracing::info!("drained");
        } else {
            tracing::info!("deadline: {forced} closed");
        }
    }
}

/// Waits until everybody has left, but no shorter than until the last call.
async fn drained(registry: &Registry, last_call: Option<Instant>) {
    if last_call.is_some() {
        sleep_until(last_call).await;
    }
    registry.drained().await;
}

/// How long a drain lasts at least. First flights that the kernel had queued here before newcomers were steered away are
/// accepted, and counted, by then; a process that ended before would leave their clients to their next retransmission.
const LAST_CALL: Duration = Duration::from_millis(100);

/// How long sessions that are closed at once may take for it.
const CLOSE: Duration = Duration::from_millis(500);

/// How long operators may take to be answered.
const ANSWER: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
