//! The order of a start, cold or as the successor of another process.
#![expect(clippy::disallowed_methods, reason = "where the environment and the clock are read")]

use super::beats::Beats;
use super::children::Children;
use super::dying::Dying;
use super::guard::Guard;
use super::kept::Kept;
use super::leave::Leave;
use super::ledgers::Ledgers;
use super::link::Link;
use super::log::Log;
use super::notify::Notify;
use super::persist::Book;
use super::reap::Reaper;
use super::replace::Held;
use super::signals::{self, Signals};
use super::store::Store;
use super::{Driver, REATTACH_INTERVAL, WAITING, Waiter, process, strangers};
use crate::cli::{Config, Failure};
use crate::control::server::{Client, ClientId, Server};
use crate::core::{Core, Event, ExitStatus, Time};
use crate::sockets::{Table, merging_interfaces};
use crate::state::{Found, Inherited, Restored, Start, Whereabouts, names, restore};
use crate::successor::Own;
use crate::unit::Unit;
use nix::time::{ClockId, clock_gettime};
use protocol::cid::Cipher;
use protocol::exit;
use protocol::keys::BootId;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tracing_subscriber::filter::Targets;

/// Supervises until the end, and returns the exit status.
///
/// Signals must be blocked: they wait until there are handlers, and the log's thread never gets any.
///
/// What was inherited is taken before anything else opens descriptors; then our own process is put in order, the log, the
/// control socket (which fails when another supervisor is there), signals, the service manager; then the first generation,
/// or those that are there.
///
/// # Errors
/// When the supervisor itself can't start; what becomes of generations is in the status.
pub fn run(config: Config, filter: Targets) -> Result<u8, Failure> {
    let own = find_own();
    let (mut inherited, complaint) = Inherited::take(|name| std::env::var_os(name));
    let mut lines = process::tidy(&inherited.numbers());
    lines.extend(complaint);
    let log = Log::start(filter, std::env::var_os("JOURNAL_STREAM").is_some());
    for line in lines {
        tracing::info!("{line}");
    }
    let found = restore(&mut inherited, &config.settings, rand::random(), since_boot());
    let server = server(&config, &found, &mut inherited)?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // Its threads resolve names.
    let runtime = runtime.enable_io().enable_time().on_thread_start(signals::none_for_this_thread).build();
    let runtime =
        runtime.map_err(|error| Failure::new(exit::FAILURE, format!("the event loop can't start: {error}")))?;
    runtime.block_on(async {
        let mut driver = Driver::new(config, log, own, server, found, inherited).await?;
        Ok(driver.run().await)
    })
}

fn find_own() -> Option<Own> {
    let name = std::env::args_os().next()?;
    let folder = std::env::current_dir().unwrap_or_default();
    Own::find(&name, std::env::var_os("PATH").as_deref(), &folder)
}

/// CLOCK_MONOTONIC, which every process on this machine reads alike (clock_gettime(2)).
fn since_boot() -> Time {
    // It fails for clocks that do not exist; this one always does.
    Time::since_epoch(clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default())
}

fn server(config: &Config, found: &Start, inherited: &mut Inherited) -> Result<Server, Failure> {
    let entry = match found {
        Start::Warm(restored) => restored.control.as_ref().filter(|entry| entry.path == config.control),
        Start::Cold(_) => None,
    };
    let fds = entry.zip(inherited.one(names::CONTROL)).zip(inherited.one(names::LOCK));
    match fds.map(|((entry, socket), lock)| Server::restored(entry, socket, lock)) {
        Some(Ok(server)) => return Ok(server),
        Some(Err(error)) => tracing::warn!("the control socket that came along can't be used: {error}"),
        None => {}
    }
    Server::bind(&config.control)
}

impl Driver {
    async fn new(
        config: Config,
        log: Log,
        own: Option<Own>,
        server: Server,
        mut found: Start,
        mut inherited: Inherited,
    ) -> Result<Self, Failure> {
        let manager = std::env::var_os("NOTIFY_SOCKET");
        let boot = BootId::random().map_err(failed("the kernel gives no random numbers"))?;
        let (asked, requests) = mpsc::channel(WAITING);
        let (clients, held) = match &mut found {
            Start::Warm(restored) => clients(restored, &mut inherited),
            Start::Cold(_) => (Vec::new(), Held::default()),
        };
        let now = since_boot();
        let mut driver = Self {
            core: Core::new(config.settings.clone(), rand::random()),
            epoch: epoch(now),
            started: now,
            events: VecDeque::new(),
            children: Children::default(),
            reaper: Reaper::new(),
            dying: Dying::default(),
            signals: Signals::new().map_err(failed("signals can't be handled"))?,
            table: Table::new(Cipher::new(&config.secret.cid_key(&boot))),
            boot,
            kept: Kept::default(),
            ledgers: Ledgers::default(),
            notify: Notify::new(manager.as_deref()).map_err(failed("NOTIFY_SOCKET can't be used"))?,
            beats: Beats::new(|name| std::env::var_os(name)),
            store: Store::default(),
            book: Book::new(&config.secret).map_err(failed("the state can't be kept"))?,
            guard: None,
            own,
            held,
            leave: Leave::default(),
            log,
            server: server.serve(asked, clients).map_err(failed("the control socket can't be used"))?,
            requests,
            results: mpsc::channel(WAITING),
            news: mpsc::channel(WAITING),
            waiters: HashMap::new(),
            next_request: 0,
            check: None,
            probe: None,
            lost: BTreeMap::new(),
            gro_error: None,
            merging: merging_interfaces(),
            alarms: Vec::new(),
            lasting: Vec::new(),
            own_trouble: None,
            checking: false,
            store_trouble: None,
            reattach: now.after(REATTACH_INTERVAL),
            changed: false,
            status_due: None,
            beat_due: None,
            exit: None,
            config,
        };
        let taken: BTreeSet<String> = match found {
            Start::Cold(lines) => {
                for line in lines {
                    tracing::error!("{line}");
                }
                driver.events.push_back(Event::Start);
                BTreeSet::new()
            }
            Start::Warm(restored) => {
                driver.take_over(*restored);
                driver.named().into_iter().map(|(name, _)| name).collect()
            }
        };
        // Before anything is stored: what is new gets the same names, above all the state and the secret of a cold start.
        driver.store.discard(&mut driver.notify, inherited.useless(|name| taken.contains(name)));
        driver.prepare(inherited).await;
        Ok(driver)
    }

    /// Goes on where another process was.
    fn take_over(&mut self, restored: Restored) {
        for line in restored.lines {
            tracing::warn!("{line}");
        }
        for alarm in &restored.alarms {
            tracing::warn!("{alarm}");
        }
        if self.config.secret_is_given && self.config.secret.expose() != restored.secret.expose() {
            tracing::warn!("--secret-file has another secret by now: it counts from the next cold start on");
        }
        self.config.secret = restored.secret;
        self.lasting = restored.alarms;
        self.core = restored.core;
        self.table = restored.table;
        self.boot = restored.boot;
        self.kept = Kept::restored(restored.kept);
        self.ledgers = Ledgers::restored(restored.ledgers);
        self.book = Book::restored(restored.slots, restored.secret_file);
        let guard = restored.guard;
        self.guard = guard.and_then(|(channel, process)| Guard::restored(channel, process, &self.reaper));
        self.events.push_back(Event::Resume { upgrade: restored.upgrade });
        for found in restored.generations {
            self.take_over_generation(found);
        }
        // Whoever ended while nobody looked.
        self.reap();
    }

    fn take_over_generation(&mut self, Found { generation, entry, process, channel }: Found) {
        let mut search = None;
        let process = match (process, entry) {
            (Whereabouts::Lives(process), _) => {
                strangers::watch(generation, &process, entry, &self.reaper, &self.news.0);
                Some(process)
            }
            (Whereabouts::Ended, Some(_)) => {
                self.events.push_back(Event::Exited { generation, status: ExitStatus::Unknown });
                None
            }
            (Whereabouts::Unknown(why), Some(entry)) => {
                tracing::warn!("generation {generation} is taken to live while its channel is open: {why}");
                search = Some(strangers::search(generation, entry, self.news.0.clone()));
                None
            }
            // It was never started.
            (Whereabouts::Ended | Whereabouts::Unknown(_), None) => return,
        };
        // One without a channel is lost at the first word to it.
        let link = channel.and_then(|channel| match Link::new(channel) {
            Ok(link) => Some(link),
            Err(error) => {
                tracing::warn!("generation {generation} can't be heard: {error}");
                None
            }
        });
        self.children.restore(generation, process, entry, link, search);
        self.watch_closely(generation);
    }

    /// What is needed before the first generation, or before those that are there are spoken to.
    async fn prepare(&mut self, mut inherited: Inherited) {
        for socket in inherited.foreign() {
            match self.table.offer(socket) {
                Ok(address) => tracing::info!("a socket of the service manager: {address}"),
                Err(line) => tracing::warn!("{line}"),
            }
        }
        let supervised = self.notify.wanted() && Unit::own().is_some();
        // A process of that unit alone: not one that somebody has started in it by hand.
        let by_systemd = std::env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid.parse() == Ok(std::process::id()));
        if self.guard.is_none() && supervised && by_systemd {
            match Guard::start(&self.reaper) {
                Ok(guard) => self.guard = Some(guard),
                Err(error) => tracing::warn!("nobody will end what a killed supervisor leaves behind: {error}"),
            }
        }
        self.persist();
        let useless = inherited.rest().next().is_some();
        drop(inherited);
        if useless {
            // The address of a socket that the service manager still holds can't be bound.
            self.last_words().await;
        }
    }
}

/// The connections that came along, and the upgrades that some of them wait for.
fn clients(restored: &mut Restored, inherited: &mut Inherited) -> (Vec<Client>, Held) {
    let triggers = std::mem::take(&mut restored.triggers);
    let names = restored.control.as_ref().map(|control| control.clients.clone()).unwrap_or_default();
    let (mut clients, mut waiters) = (Vec::new(), Vec::new());
    for (number, name) in names.iter().enumerate() {
        let Some(stream) = inherited.one(name).map(UnixStream::from) else { continue };
        let answer = triggers.iter().any(|trigger| trigger.client.as_ref() == Some(name)).then(|| {
            let (reply, answer) = oneshot::channel();
            // The server numbers them in this order.
            waiters.push(Waiter { reply, client: ClientId::nth(number) });
            answer
        });
        clients.push(Client { stream, answer });
    }
    (clients, Held::restored(&triggers, waiters))
}

/// The boot of the machine, on the runtime's clock, which is the same clock.
fn epoch(now: Time) -> Instant {
    let instant = Instant::now();
    instant.checked_sub(now.elapsed()).unwrap_or(instant)
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::new(exit::FAILURE, format!("{what}: {error}"))
}
