//! The loop: signals, ended children, messages of children, control requests and time become
//! [`Event`]s; what the [`Core`] orders is performed in order. Nothing else changes the lifecycle, and nothing here
//! waits for anybody: docs/design/driver.md.

mod adopt;
mod beats;
mod capture;
mod children;
mod commands;
mod dying;
mod ends;
mod environment;
mod guard;
mod kept;
mod leave;
mod ledgers;
mod lineage;
mod link;
mod log;
mod notify;
mod overlap;
mod perform;
mod persist;
mod process;
mod program;
mod reap;
mod replace;
mod show;
mod signals;
mod spawn;
mod start;
mod status;
mod store;
mod strangers;

pub use start::run;

use crate::cli::Config;
use crate::control::server::{Asked, ClientId, Running};
use crate::control::{Reply, Request};
use crate::core::{Core, Event, ExitStatus, RequestId, Time};
use crate::sockets::{Merging, Table};
use crate::successor::{Identity, Own};
use crate::sys::pidfd::Pidfd;
use beats::Beats;
use children::Children;
use commands::Background;
use dying::Dying;
use guard::Guard;
use kept::Kept;
use leave::Leave;
use ledgers::Ledgers;
use link::Heard;
use log::Log;
use notify::Notify;
use persist::Book;
use protocol::keys::BootId;
use protocol::message::{FromChild, Generation};
use reap::Reaper;
use replace::Held;
use signals::{Signal, Signals};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};
use store::{Checked, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout};

/// The steering program is attached afresh this often, since any holder of a member could replace it unseen.
const REATTACH_INTERVAL: Duration = Duration::from_secs(10);
/// Requests and results that wait for the loop; whoever has more waits itself.
const WAITING: usize = 16;
/// A process that ends closes its channel first, so the end of a channel is news of its own only if the process is still
/// there after this. The core would otherwise blame the channel for what the exit status explains.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// The guard lets generations end by themselves for so long beyond their own drain timeout.
const GUARD_MARGIN: Duration = Duration::from_secs(2);
/// At the end: for orphans to die, and for clients to take their last answer.
const FAREWELL: Duration = Duration::from_millis(500);

/// Everything that is not the lifecycle itself.
struct Driver {
    config: Config,
    core: Core,
    /// When the machine started, on the runtime's clock: moments are counted from there, so that another process counts
    /// them alike.
    epoch: Instant,
    /// When this program started.
    started: Time,
    /// Facts that the core has not been told yet.
    events: VecDeque<Event>,
    children: Children,
    reaper: Reaper,
    dying: Dying,
    signals: Signals,
    table: Table,
    boot: BootId,
    kept: Kept,
    ledgers: Ledgers,
    notify: Notify,
    beats: Beats,
    store: Store,
    book: Book,
    guard: Option<Guard>,
    /// Our program on disk; `None` when it was not found.
    own: Option<Own>,
    /// Upgrades for which we have to replace ourselves first.
    held: Held,
    leave: Leave,
    log: Log,
    server: Running,
    requests: mpsc::Receiver<Asked>,
    results: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    waiters: HashMap<RequestId, Vec<Waiter>>,
    next_request: u64,
    check: Option<(Generation, Background)>,
    probe: Option<Background>,
    /// Channels that have ended, of processes that have not, as far as is known.
    lost: BTreeMap<Generation, (Time, String)>,
    /// Why UDP_GRO could not be turned off, until the next steering.
    gro_error: Option<String>,
    /// Interfaces that merge datagrams, as found at the start.
    merging: Vec<Merging>,
    /// What an operator should look at, as found last.
    alarms: Vec<String>,
    /// What an operator should look at until the service is started afresh.
    lasting: Vec<String>,
    /// Why our new program was not executed.
    own_trouble: Option<String>,
    /// The fd store is being asked whether it has everything.
    checking: bool,
    /// Why the fd store is of no use.
    store_trouble: Option<String>,
    /// When the steering program is due to be attached afresh.
    reattach: Time,
    /// A state has changed since the service manager was told.
    changed: bool,
    /// When the service manager may be told the next status text.
    status_due: Option<Time>,
    /// When the service manager wants to hear from us again.
    beat_due: Option<Time>,
    exit: Option<u8>,
}

/// Something that happened.
enum Happened {
    Signal(Signal),
    Heard(Generation, Heard),
    Dying(Generation, ExitStatus),
    Result(Event),
    News(News),
    Asked(Asked),
    Time,
}

/// What a task has found out for the driver itself.
#[derive(Debug)]
enum News {
    /// Our new program, this very file, can take over, or why not.
    Successor(Result<Identity, String>),
    /// Whether the fd store has everything; `None`: the service manager does not say.
    Stored(Option<Checked>),
    /// The end of a process that is not our child.
    Ended(Generation, ExitStatus),
    /// The process of a generation of which nobody knew whether it lives.
    Found(Generation, Pidfd),
}

/// Who waits for an answer.
#[derive(Debug)]
struct Waiter {
    reply: oneshot::Sender<Reply>,
    client: ClientId,
}

impl Driver {
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
                Happened::Dying(generation, status) => self.dies(generation, status),
                Happened::Result(event) => self.events.push_back(event),
                Happened::News(News::Successor(answer)) => self.successor_answered(answer).await,
                Happened::News(News::Stored(checked)) => self.stored(checked),
                Happened::News(News::Ended(generation, status)) => self.ended(generation, status),
                Happened::News(News::Found(generation, process)) => self.found(generation, process),
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
            self.events.push_back(if self.children.is_searched_for(generation) {
                Event::Exited { generation, status: ExitStatus::Lost }
            } else {
                Event::ChannelLost { generation, error }
            });
        }
        loop {
            self.take_in();
            self.attend_to_held();
            self.attend_to_leave();
            if self.events.is_empty() {
                break;
            }
        }
        self.persist();
        if let Some(guard) = &mut self.guard {
            guard.allow(self.core.longest_own_drain() + GUARD_MARGIN);
        }
        let now = self.now();
        if now >= self.reattach {
            self.reattach = now.after(REATTACH_INTERVAL);
            self.reattach();
        }
        self.look_at_store();
        if self.notify.wanted() {
            let snapshot = self.core.snapshot(now);
            let text = status::text(&snapshot);
            self.status_due = self.notify.status(now, &text, !std::mem::take(&mut self.changed));
            self.beats.beat(now, &snapshot, &mut self.notify);
            let again = self.notify.flush().map(|wait| now.after(wait));
            self.beat_due = self.beats.due(&snapshot).into_iter().chain(again).min();
        }
    }

    fn take_in(&mut self) {
        let mut actions = Vec::new();
        while let Some(event) = self.events.pop_front() {
            let now = self.now();
            tracing::debug!(?event, "event");
            self.core.handle(now, event, &mut actions);
            if !actions.is_empty() {
                // What is intended, before it is done: it is said again by who goes on from here.
                self.persist();
            }
            for action in actions.drain(..) {
                tracing::debug!(?action, "action");
                self.perform(action);
            }
        }
    }

    /// Waits. Whatever is given up when another comes first is still there the next time.
    async fn next(&mut self) -> Happened {
        let lost = self.lost.values().map(|(due, _)| *due);
        let manager = self.status_due.into_iter().chain(self.beat_due);
        let due = lost.chain(self.core.next_deadline()).chain(manager).fold(self.reattach, Time::min);
        tokio::select! {
            signal = self.signals.next() => Happened::Signal(signal),
            (generation, heard) = self.children.hear() => Happened::Heard(generation, heard),
            (generation, status) = self.dying.next() => Happened::Dying(generation, status),
            Some(event) = self.results.1.recv() => Happened::Result(event),
            Some(news) = self.news.1.recv() => Happened::News(news),
            Some(asked) = self.requests.recv() => Happened::Asked(asked),
            () = sleep_until((self.epoch + due.elapsed()).into()) => Happened::Time,
        }
    }

    fn signalled(&mut self, signal: Signal) {
        match signal {
            Signal::PassOn(_) | Signal::ChildEnded => {}
            Signal::Stop | Signal::Upgrade | Signal::Reload | Signal::Leave => tracing::info!("signal: {signal}"),
        }
        match signal {
            Signal::Stop => self.events.push_back(Event::Stop),
            Signal::Upgrade => self.upgrade_wanted(None, false),
            Signal::Reload => self.events.push_back(Event::Reload),
            Signal::Leave => self.leave_wanted(),
            Signal::PassOn(number) => self.children.signal(number),
            Signal::ChildEnded => self.reap(),
        }
    }

    fn heard(&mut self, generation: Generation, heard: Heard) {
        let event = match heard {
            Heard::Message(FromChild::Keep { name }, fds) => match self.kept.keep(name, &fds) {
                Ok(()) => return,
                Err(error) => Event::Garbage { generation, error },
            },
            Heard::Message(message, fds) if fds.is_empty() => {
                if matches!(message, FromChild::Ready) {
                    self.watch_closely(generation);
                }
                Event::Message { generation, message }
            }
            Heard::Message(_, fds) => {
                let error = format!("{} descriptors beside a message that has none", fds.len());
                Event::Garbage { generation, error }
            }
            Heard::Garbage(error) => Event::Garbage { generation, error },
            Heard::End(error) => return self.lose(generation, error),
        };
        self.events.push_back(event);
    }

    fn asked(&mut self, Asked { request, reply, client }: Asked) {
        match request {
            Request::Status => {
                // A client that has gone needs no answer.
                let _ = reply.send(Reply::Status(Box::new(self.status())));
            }
            Request::Upgrade { evict_oldest } => self.upgrade_wanted(Some(Waiter { reply, client }), evict_oldest),
            Request::Rollback => {
                let waiter = Some(self.wait(vec![Waiter { reply, client }]));
                self.events.push_back(Event::Rollback { waiter });
            }
        }
    }

    fn wait(&mut self, waiters: Vec<Waiter>) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.waiters.insert(id, waiters);
        id
    }

    /// The end: what left its generation's process group dies with us, every client hears that we end, and the service
    /// manager has heard everything.
    async fn farewell(&mut self) {
        let leaving = self.core.is_leaving();
        self.waiters.clear();
        self.held = Held::default();
        self.requests.close();
        while let Ok(asked) = self.requests.try_recv() {
            drop(asked);
        }
        // Each kill may hand us further orphans; the end of each comes as SIGCHLD. After a leave they are those of
        // generations that serve on.
        let swept = async {
            self.reaper.collect();
            while !leaving && !self.reaper.is_even() {
                let _ = self.signals.next().await;
                self.reaper.collect();
            }
            while !leaving && self.reaper.sweep() > 0 {
                let _ = self.signals.next().await;
                self.reaper.collect();
            }
        };
        if timeout(FAREWELL, swept).await.is_err() {
            tracing::warn!("some orphans of the generations did not die in time");
        }
        let _ = timeout(FAREWELL, self.server.answered()).await;
        if !leaving {
            // Nothing is left to go on with, or to be seen to.
            if let Some(guard) = self.guard.take() {
                let _ = timeout(FAREWELL, guard.dismiss()).await;
            }
            self.store.prune(&mut self.notify, &[]);
        }
        if self.checking {
            self.store.close(&mut self.notify);
        }
        self.last_words().await;
    }
}

#[cfg(test)]
mod tests;
