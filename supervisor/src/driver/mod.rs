//! The loop: signals, ended children, messages of children, control requests and time become
//! [`Event`]s; what the [`Core`] orders is performed in order. Nothing else changes the lifecycle, and nothing here
//! waits for anybody: docs/design/driver.md.
#![expect(clippy::disallowed_methods, reason = "the loop is where the clock and the environment are read")]

mod adopt;
mod children;
mod commands;
mod environment;
mod kept;
mod link;
mod log;
mod notify;
mod perform;
mod process;
mod program;
mod reap;
mod signals;
mod spawn;
mod status;

use crate::cli::{Config, Failure};
use crate::control::server::{Asked, Running, Server};
use crate::control::{ListenerStatus, Reply, Request};
use crate::core::{Core, Event, RequestId, Snapshot, Time};
use crate::sockets::{Handed, Merging, Table, merging_interfaces};
use children::Children;
use commands::Background;
use kept::Kept;
use link::Heard;
use notify::Notify;
use protocol::cid::Cipher;
use protocol::exit;
use protocol::keys::BootId;
use protocol::message::{Adopted, FromChild, Generation};
use reap::Reaper;
use signals::{Signal, Signals};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout};
use tracing_subscriber::filter::Targets;

/// The steering program is attached afresh this often, since any holder of a member could replace it unseen.
const REATTACH_INTERVAL: Duration = Duration::from_secs(10);
/// Requests and results that wait for the loop; whoever has more waits itself.
const WAITING: usize = 16;
/// A process that ends closes its channel first, so the end of a channel is news of its own only if the process is still
/// there after this. The core would otherwise blame the channel for what the exit status explains.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// At the end: for orphans to die, and for clients to take their last answer.
const FAREWELL: Duration = Duration::from_millis(500);

/// Supervises until the end, and returns the exit status.
///
/// The order of a start: our own process is put in order, then the log, the control socket (which fails when another
/// supervisor is there), signals, the service manager; then the first generation.
///
/// # Errors
/// When the supervisor itself can't start; what becomes of generations is in the status.
pub fn run(config: Config, filter: Targets) -> Result<u8, Failure> {
    let lines = process::tidy();
    let stamped = std::env::var_os("JOURNAL_STREAM").is_some();
    let _log = log::start(filter, stamped);
    for line in lines {
        tracing::info!("{line}");
    }
    let server = Server::bind(&config.control)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime =
        runtime.map_err(|error| Failure::new(exit::FAILURE, format!("the event loop can't start: {error}")))?;
    runtime.block_on(async {
        let mut driver = Driver::new(config, server)?;
        Ok(driver.run().await)
    })
}

/// Everything that is not the lifecycle itself.
struct Driver {
    config: Config,
    core: Core,
    epoch: Instant,
    /// Facts that the core has not been told yet.
    events: VecDeque<Event>,
    children: Children,
    reaper: Reaper,
    signals: Signals,
    table: Table,
    boot: BootId,
    kept: Kept,
    notify: Notify,
    server: Running,
    requests: mpsc::Receiver<Asked>,
    results: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    waiters: HashMap<RequestId, oneshot::Sender<Reply>>,
    next_request: u64,
    check: Option<(Generation, Background)>,
    probe: Option<Background>,
    /// Channels that have ended, of processes that have not, as far as is known.
    lost: BTreeMap<Generation, (Time, String)>,
    /// Why UDP_GRO could not be turned off, until the next steering.
    gro_error: Option<String>,
    /// Interfaces that merge datagrams, as found at the start.
    merging: Vec<Merging>,
    /// What an operator should look at.
    alarms: Vec<String>,
    /// When the steering program is due to be attached afresh.
    reattach: Time,
    /// A state has changed since the service manager was told.
    changed: bool,
    /// When the service manager may be told the next status text.
    status_due: Option<Time>,
    exit: Option<u8>,
}

/// Something that happened.
enum Happened {
    Signal(Signal),
    Heard(Generation, Heard),
    Result(Event),
    Asked(Asked),
    Time,
}

impl Driver {
    fn new(config: Config, server: Server) -> Result<Self, Failure> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: std::io::Error| Failure::new(exit::FAILURE, format!("{what}: {error}"))
        };
        let (asked, requests) = mpsc::channel(WAITING);
        let boot = BootId::random().map_err(failed("the kernel gives no random numbers"))?;
        let epoch = Instant::now();
        let manager = std::env::var_os("NOTIFY_SOCKET");
        Ok(Self {
            core: Core::new(config.settings.clone(), rand::random()),
            epoch,
            events: VecDeque::from([Event::Start]),
            children: Children::default(),
            reaper: Reaper::default(),
            signals: Signals::new().map_err(failed("signals can't be handled"))?,
            table: Table::new(Cipher::new(&config.secret.cid_key(&boot))),
            boot,
            kept: Kept::default(),
            notify: Notify::new(manager.as_deref()).map_err(failed("NOTIFY_SOCKET can't be used"))?,
            server: server.serve(asked).map_err(failed("the control socket can't be used"))?,
            requests,
            results: mpsc::channel(WAITING),
            waiters: HashMap::new(),
            next_request: 0,
            check: None,
            probe: None,
            lost: BTreeMap::new(),
            gro_error: None,
            merging: merging_interfaces(),
            alarms: Vec::new(),
            reattach: Time::since_epoch(REATTACH_INTERVAL),
            changed: false,
            status_due: None,
            exit: None,
            config,
        })
    }

    async fn run(&mut self) -> u8 {
        loop {
            self.settle();
            if let Some(status) = self.exit {
                self.farewell().await;
                return status;
            }
            match self.next().await {
                Happened::Signal(signal) => self.signalled(signal),
                Happened::Heard(generation, heard) => self.heard(generation, heard),
                Happened::Result(event) => self.events.push_back(event),
                Happened::Asked(asked) => self.asked(asked),
                Happened::Time => self.events.push_back(Event::Tick),
            }
        }
    }

    fn now(&self) -> Time {
        Time::since_epoch(self.epoch.elapsed())
    }

    /// Tells the core all there is to tell and performs what it orders, until both have nothing left.
    fn settle(&mut self) {
        let now = self.now();
        for (generation, (_, error)) in self.lost.extract_if(.., |_, (due, _)| *due <= now) {
            self.events.push_back(Event::ChannelLost { generation, error });
        }
        let mut actions = Vec::new();
        while let Some(event) = self.events.pop_front() {
            let now = self.now();
            tracing::debug!(?event, "event");
            self.core.handle(now, event, &mut actions);
            for action in actions.drain(..) {
                tracing::debug!(?action, "action");
                self.perform(action);
            }
        }
        let now = self.now();
        if now >= self.reattach {
            self.reattach = now.after(REATTACH_INTERVAL);
            self.reattach();
        }
        if self.notify.wanted() {
            let text = status::text(&self.core.snapshot(now));
            self.status_due = self.notify.status(now, &text, !std::mem::take(&mut self.changed));
        }
    }

    /// Waits. Whatever is given up when another comes first is still there the next time.
    async fn next(&mut self) -> Happened {
        let lost = self.lost.values().map(|(due, _)| *due);
        let due = lost.chain(self.core.next_deadline()).chain(self.status_due).fold(self.reattach, Time::min);
        tokio::select! {
            signal = self.signals.next() => Happened::Signal(signal),
            (generation, heard) = self.children.hear() => Happened::Heard(generation, heard),
            Some(event) = self.results.1.recv() => Happened::Result(event),
            Some(asked) = self.requests.recv() => Happened::Asked(asked),
            () = sleep_until((self.epoch + due.elapsed()).into()) => Happened::Time,
        }
    }

    fn signalled(&mut self, signal: Signal) {
        let event = match signal {
            Signal::Stop => Event::Stop,
            Signal::Upgrade => Event::Upgrade { waiter: None, evict_oldest: false },
            Signal::Reload => Event::Reload,
            Signal::Leave => Event::Leave { stored: false },
            Signal::PassOn(number) => return self.children.signal(number),
            Signal::ChildEnded => return self.reap(),
        };
        tracing::info!("signal: {signal}");
        self.events.push_back(event);
    }

    fn reap(&mut self) {
        for (generation, status) in self.reaper.collect() {
            for heard in self.children.ended(generation) {
                self.heard(generation, heard);
            }
            self.lost.remove(&generation);
            self.events.push_back(Event::Exited { generation, status });
        }
    }

    /// Nothing more can be said to this child, or heard from it.
    fn lose(&mut self, generation: Generation, error: String) {
        let due = self.now().after(LOST_AFTER);
        self.lost.entry(generation).or_insert((due, error));
    }

    fn heard(&mut self, generation: Generation, heard: Heard) {
        let event = match heard {
            Heard::Message(FromChild::Keep { name }, fds) => match self.kept.keep(name, &fds) {
                Ok(()) => return,
                Err(error) => Event::Garbage { generation, error },
            },
            Heard::Message(message, fds) if fds.is_empty() => Event::Message { generation, message },
            Heard::Message(_, fds) => {
                let error = format!("{} descriptors beside a message that has none", fds.len());
                Event::Garbage { generation, error }
            }
            Heard::Garbage(error) => Event::Garbage { generation, error },
            Heard::End(error) => return self.lose(generation, error),
        };
        self.events.push_back(event);
    }

    fn asked(&mut self, Asked { request, reply }: Asked) {
        match request {
            Request::Status => {
                // A client that has gone needs no answer.
                let _ = reply.send(Reply::Status(Box::new(self.status())));
            }
            Request::Upgrade { evict_oldest } => {
                let waiter = Some(self.wait(reply));
                self.events.push_back(Event::Upgrade { waiter, evict_oldest });
            }
            Request::Rollback => {
                let waiter = Some(self.wait(reply));
                self.events.push_back(Event::Rollback { waiter });
            }
        }
    }

    fn wait(&mut self, reply: oneshot::Sender<Reply>) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.waiters.insert(id, reply);
        id
    }

    fn status(&self) -> crate::control::Status {
        let now = self.now();
        let supervisor = status::supervisor(now, &self.config.program);
        let snapshot = self.core.snapshot(now);
        let listeners = self.listeners(&snapshot);
        status::status(snapshot, supervisor, listeners, self.alarms.clone())
    }

    /// As the youngest live generation that has them.
    fn listeners(&self, snapshot: &Snapshot) -> Vec<ListenerStatus> {
        let mut listeners: Vec<ListenerStatus> = Vec::new();
        for view in snapshot.generations.iter().rev() {
            for Handed { socket, fds } in self.table.handed(view.generation) {
                let Adopted { name, kind, address, .. } = socket;
                if !listeners.iter().any(|other| other.kind == kind && other.address == address) {
                    listeners.push(ListenerStatus { name, kind, address, members: fds.len() });
                }
            }
        }
        listeners
    }

    /// Attaches the steering program afresh, and looks who else is at our addresses.
    fn reattach(&mut self) {
        if let Err(error) = self.table.reattach() {
            tracing::warn!("{error}");
        }
        let foreign = match self.table.foreign() {
            Ok(foreign) => foreign,
            // A sandbox without netlink: said once, at debug, since it says nothing about the service.
            Err(error) => return tracing::debug!("sockets of others can't be counted: {error}"),
        };
        let merging = self.merging.iter().map(ToString::to_string);
        let alarms: Vec<String> = foreign.iter().map(ToString::to_string).chain(merging).collect();
        for alarm in alarms.iter().filter(|alarm| !self.alarms.contains(alarm)) {
            tracing::warn!("{alarm}");
        }
        self.alarms = alarms;
    }

    /// The end: what left its generation's process group dies with us, and every client hears that we end.
    async fn farewell(&mut self) {
        self.waiters.clear();
        self.requests.close();
        while let Ok(asked) = self.requests.try_recv() {
            drop(asked);
        }
        // Each kill may hand us further orphans; the end of each comes as SIGCHLD.
        let swept = async {
            while self.reaper.sweep() > 0 {
                let _ = self.signals.next().await;
                self.reaper.collect();
            }
        };
        if timeout(FAREWELL, swept).await.is_err() {
            tracing::warn!("some orphans of the generations did not die in time");
        }
        let _ = timeout(FAREWELL, self.server.answered()).await;
    }
}

#[cfg(test)]
mod tests;
