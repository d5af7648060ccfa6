//! The workers: one thread, runtime, socket and QUIC endpoint each.
//!
//! A connection stays with the worker that accepted it for its whole life: its packets come to that worker's socket, its
//! TLS, streams and sessions run on that thread. Workers share nothing but the node.

mod pin;
mod thread;

use crate::node::{Node, Tally};
use protocol::child::Member;
use protocol::cid::MemberId;
use protocol::quinn::{Endpoints, MemberCounters};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot, watch};

/// What all workers of the process have in common.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The node they serve.
    pub(crate) node: Arc<Node>,
    /// Makes their endpoints.
    pub(crate) endpoints: Endpoints,
    /// How they accept.
    pub(crate) server: quinn::ServerConfig,
}

/// All workers.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    ended: mpsc::UnboundedReceiver<Ended>,
    stop: watch::Sender<bool>,
}

/// One worker, from outside.
#[derive(Debug)]
pub(crate) struct Worker {
    /// The number of its member.
    pub(crate) member: MemberId,
    /// Its open sessions.
    pub(crate) tally: Arc<Tally>,
    /// What its socket got.
    pub(crate) counters: Arc<MemberCounters>,
    thread: JoinHandle<()>,
}

/// A worker has ended.
#[derive(Debug, thiserror::Error)]
#[error("the worker of member {} {}", .member.get(), reason(.result))]
pub(crate) struct Ended {
    /// The number of its member.
    pub(crate) member: MemberId,
    /// Why; `Ok` after a stop.
    pub(crate) result: Result<(), Death>,
}

/// Why a worker ended without having been told to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Death {
    /// Its runtime or endpoint could not be made.
    #[error("it could not start: {0}")]
    Start(#[source] std::io::Error),
    /// Its endpoint stopped: the socket failed, or quinn did.
    #[error("its QUIC endpoint stopped")]
    Endpoint,
    /// It panicked.
    #[error("it panicked: {0}")]
    Panic(String),
}

fn reason(result: &Result<(), Death>) -> String {
    match result {
        Ok(()) => "stopped".to_owned(),
        Err(death) => format!("died: {death}"),
    }
}

impl Workers {
    /// A relay without a QUIC listener.
    pub(crate) fn none() -> Self {
        let (_, ended) = mpsc::unbounded_channel();
        Self::ending_by(ended)
    }

    /// Without workers, but with what they would say at their end.
    pub(crate) fn ending_by(ended: mpsc::UnboundedReceiver<Ended>) -> Self {
        Self { workers: Vec::new(), ended, stop: watch::Sender::new(false) }
    }

    /// Starts a worker for each member, all at the same time, and waits until all can accept.
    ///
    /// # Errors
    /// The first worker that can't start.
    pub(crate) async fn start(members: Vec<Member>, pin: bool, shared: &Shared) -> Result<Self, Ended> {
        let (ended_sender, ended) = mpsc::unbounded_channel();
        let stop = watch::Sender::new(false);
        let cores = if pin { pin::cores() } else { Vec::new() };
        let mut starting = Vec::with_capacity(members.len());
        for (index, member) in members.into_iter().enumerate() {
            let (started_sender, started) = oneshot::channel();
            let core = if cores.is_empty() { None } else { Some(cores[index % cores.len()]) };
            let id = member.id;
            let tally = Arc::new(Tally::default());
            let spec = thread::Spec { member, core, tally: tally.clone(), stop: stop.subscribe() };
            let thread = thread::spawn(spec, shared.clone(), started_sender, ended_sender.clone());
            let thread = thread.map_err(|error| Ended { member: id, result: Err(Death::Start(error)) })?;
            starting.push((id, tally, thread, started));
        }
        let mut all = Self { workers: Vec::with_capacity(starting.len()), ended, stop };
        for (member, tally, thread, started) in starting {
            let Ok(counters) = started.await else {
                // It has said why, before it dropped its end of `started`.
                return Err(all.ended().await);
            };
            all.workers.push(Worker { member, tally, counters, thread });
        }
        Ok(all)
    }

    /// Waits until a worker ends. For ever, when there is none.
    pub(crate) async fn ended(&mut self) -> Ended {
        match self.ended.recv().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Each worker.
    pub(crate) fn each(&self) -> &[Worker] {
        &self.workers
    }

    /// Stops all and waits until each has brought the closes of its last sessions onto the wire. Nothing is accepted any
    /// more.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        // Ends when each thread has dropped its sender.
        while self.ended.recv().await.is_some() {}
        for worker in self.workers {
            // A thread reports its panic itself.
            drop(worker.thread.join());
        }
    }
}

#[cfg(test)]
mod tests;
