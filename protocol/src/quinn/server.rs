//! A whole supervised QUIC server, for applications that only want accepted connections.

use super::endpoint::{Endpoints, MemberEndpoint};
use super::record::{MemberLedger, Recorded};
use super::tally::{Counted, Tally};
use crate::child::{Adoption, Command, Receiver, Sender, Socket, Supervisor};
use crate::message::Stats;
use quinn::{Connection, Incoming, ServerConfig, VarInt};
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

/// How long a server that is no longer active finishes handshakes that still reach it; later ones are left unanswered,
/// so that the client's next try reaches the active one. Long enough for the retransmissions of a client whose first
/// flight was split by the switch. It never refuses: that would fail the client.
pub const GRACE: Duration = Duration::from_secs(3);

/// A running server. It drains when the supervisor says so or is gone: waits for its sessions to end, and closes those
/// that are left at the deadline.
#[derive(Debug)]
pub struct Server {
    sessions: mpsc::Receiver<Session>,
}

/// An established connection; the server counts it, and a drain waits for it, until this is dropped.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    _counted: Counted,
    _recorded: Option<Recorded>,
}

impl Deref for Session {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Server {
    /// Serves on every QUIC member, says `ready`, and from then on obeys the supervisor in tasks of the tokio runtime
    /// that must run.
    ///
    /// # Errors
    ///
    /// When no endpoint can be made on a member; the supervisor is told `failed`.
    pub fn start(supervisor: Supervisor, adoption: Adoption, config: &ServerConfig) -> io::Result<Self> {
        let (sender, receiver) = supervisor.split();
        let endpoints = Endpoints::new(&adoption);
        let members = adoption.listeners.into_iter().flat_map(|listener| match listener.socket {
            Socket::Quic(members) => members,
            Socket::Tcp(_) | Socket::Unix(_) => Vec::new(),
        });
        let members: io::Result<Vec<MemberEndpoint>> =
            members.map(|member| endpoints.open(member, Some(config.clone()))).collect();
        let members = members.inspect_err(|error| sender.failed(&format!("make a QUIC endpoint: {error}")))?;

        let tally = Tally::default();
        let (gate, open_until) = watch::channel(None);
        let (accepted, sessions) = mpsc::channel(64);
        for member in &members {
            let (tally, open_until, accepted) = (tally.clone(), open_until.clone(), accepted.clone());
            let acceptor = Acceptor { tally, open_until, accepted, ledger: member.ledger.clone() };
            tokio::spawn(acceptor.run(member.endpoint.clone()));
        }
        sender.ready();
        let drain_timeout = adoption.drain.timeout;
        let warden = Warden {
            sender,
            endpoints,
            members,
            tally,
            gate,
            deadline: None,
            last_call: None,
            drain_timeout,
            _accepted: accepted,
        };
        tokio::spawn(warden.run(receiver));
        Ok(Self { sessions })
    }

    /// The next session; `None`: the server has drained, every session has ended or was closed.
    pub async fn accept(&mut self) -> Option<Session> {
        self.sessions.recv().await
    }
}

/// Accepts on one endpoint.
#[derive(Clone)]
struct Acceptor {
    tally: Tally,
    open_until: watch::Receiver<Option<Instant>>,
    accepted: mpsc::Sender<Session>,
    ledger: Option<Arc<MemberLedger>>,
}

impl Acceptor {
    async fn run(self, endpoint: quinn::Endpoint) {
        while let Some(incoming) = endpoint.accept().await {
            if self.open_until.borrow().is_some_and(|until| until <= Instant::now()) {
                incoming.ignore();
            } else {
                // Counted here: a drain that looked before the task has run would not see it.
                tokio::spawn(self.clone().establish(incoming, self.tally.begin()));
            }
        }
    }

    async fn establish(self, incoming: Incoming, mut counted: Counted) {
        let recorded = self.ledger.map(|ledger| ledger.recorded(incoming.remote_address()));
        if let Ok(connection) = incoming.await {
            counted.establish();
            // An application that has dropped the server wants no more.
            let _ = self.accepted.send(Session { connection, _counted: counted, _recorded: recorded }).await;
        }
    }
}

/// Obeys, reports, and ends the server.
struct Warden {
    sender: Sender,
    endpoints: Endpoints,
    members: Vec<MemberEndpoint>,
    tally: Tally,
    /// Until when new handshakes are accepted; `None`: for ever.
    gate: watch::Sender<Option<Instant>>,
    /// Draining until then.
    deadline: Option<Instant>,
    /// Not drained before.
    last_call: Option<Instant>,
    drain_timeout: Duration,
    /// Keeps [`Server::accept`] waiting until the last word has been said, since the process may end right after.
    _accepted: mpsc::Sender<Session>,
}

impl Warden {
    async fn run(mut self, mut receiver: Receiver) {
        let mut changed = self.tally.watch();
        let (mut supervised, mut reported) = (true, Instant::now());
        let mut report = reported;
        while !self.drained() {
            tokio::select! {
                command = receiver.next(), if supervised => match command {
                    Some(command) => self.obey(command),
                    None => {
                        supervised = false;
                        self.drain(self.drain_timeout);
                    }
                },
                // The tally lives as long as `self`, so this is always a change.
                _ = changed.changed() => report = report.min(reported + SOON),
                () = sleep_until(report) => {
                    self.report();
                    reported = Instant::now();
                    report = reported + EACH;
                }
                () = sleep_until(self.last_call.unwrap_or(report)), if self.last_call.is_some() => self.last_call = None,
                () = sleep_until(self.deadline.unwrap_or(report)), if self.deadline.is_some() => {
                    self.tally.force();
                    break;
                }
            }
        }
        self.end().await;
    }

    fn drained(&self) -> bool {
        self.deadline.is_some() && self.last_call.is_none() && self.tally.counts().open() == 0
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Activate { seq } | Command::Canary { seq, .. } => {
                self.gate.send_replace(None);
                self.sender.ack(seq);
            }
            Command::Undrain { seq } => {
                self.deadline = None;
                self.gate.send_replace(None);
                self.sender.ack(seq);
            }
            Command::Standby { seq } => {
                self.leave();
                self.sender.ack(seq);
            }
            Command::Drain { seq, timeout, .. } => {
                self.drain(timeout);
                self.sender.ack(seq);
            }
            Command::Heir(estates) => drop(tokio::spawn(self.endpoints.inherit(estates))),
            // The supervisor sets UDP_GRO itself, and this server has nothing to reload, to peer with or to add up.
            Command::Gro { .. }
            | Command::Alone
            | Command::Reload
            | Command::Link { .. }
            | Command::Counters { .. } => {}
        }
    }

    fn leave(&self) {
        self.gate.send_if_modified(|until| {
            let first = until.is_none();
            until.get_or_insert_with(|| Instant::now() + GRACE);
            first
        });
    }

    /// Another drain may come with less time, never with more.
    fn drain(&mut self, timeout: Duration) {
        self.leave();
        self.last_call = Some(Instant::now() + LAST_CALL);
        let deadline = Instant::now() + timeout.min(FOR_EVER);
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
    }

    fn report(&self) {
        let counts = self.tally.counts();
        let received: u64 = self.members.iter().map(|member| member.counters.received()).sum();
        self.sender.stats(Stats {
            sessions: counts.sessions,
            setup: counts.setup,
            handshakes: counts.handshakes,
            forced: counts.forced,
            foreign: self.members.iter().map(|member| member.counters.foreign()).sum(),
            traffic: [("datagrams_received".to_owned(), received.into())].into_iter().collect(),
            ..Stats::default()
        });
    }

    /// Closes what is left, and has the closes on the wire before the last report.
    async fn end(self) {
        for member in &self.members {
            member.endpoint.close(VarInt::from_u32(0), b"drained");
        }
        let idle = async {
            for member in &self.members {
                member.endpoint.wait_idle().await;
            }
        };
        // A client that is gone would keep its connection closing for three timeouts (RFC 9000 section 10.2).
        let _ = timeout(FAREWELL, idle).await;
        self.report();
    }
}

/// How long a drain lasts at least. First flights that the kernel had queued here before the switch are read, and counted, by
/// then; a process that ended before would turn their clients away.
const LAST_CALL: Duration = Duration::from_millis(100);
/// How often to report.
const EACH: Duration = Duration::from_secs(1);
/// How soon to report a change: many come together.
const SOON: Duration = Duration::from_millis(100);
/// How long the closes may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// A timeout beyond this would overflow the clock.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
