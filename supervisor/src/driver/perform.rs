//! Performing what the core orders.

use super::adopt;
use super::link::Link;
use super::spawn::{self, Started};
use super::{Driver, commands, overlap};
use crate::control::Reply;
use crate::core::{Action, Event, Note, SpawnError, Steering};
use crate::state::ProcessEntry;
use protocol::channel::{Channel, sealed_memfd};
use protocol::cid::Cipher;
use protocol::exit;
use protocol::keys::BootId;
use protocol::message::{Adopt, DrainSettings, Generation, ToChild, Wanted};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Why a child did not get its sockets.
enum NotAdopted {
    /// It can't have what it wants.
    Refused {
        /// One line for the operator.
        error: String,
        /// What a first generation's failure by this ends the supervisor with.
        status: u8,
    },
    /// It can't be told: most likely it has just ended, and its own end says more.
    Lost(String),
}

impl Driver {
    /// Performs one order. What comes of it is told to the core after the orders that were given with it.
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::Check { generation } => self.check(generation),
            Action::StopCheck { generation } => drop(self.check.take_if(|(running, _)| *running == generation)),
            Action::Rekey => self.rekey(),
            Action::Spawn { generation } => {
                let event = match self.spawn(generation) {
                    Ok(pid) => Event::Spawned { generation, pid },
                    Err(error) => Event::SpawnFailed { generation, error },
                };
                self.events.push_back(event);
            }
            Action::Adopt { generation, wanted, protocol, gro, older_live, links, ledger, takes_over, flush } => {
                let links = overlap::pairs(&links);
                let head = self.adopt_head(generation, protocol, gro, older_live);
                let head = Adopt { links: overlap::count(&links), ledger, ..head };
                let event = match self.adopt(head, &wanted, takes_over, flush) {
                    Ok(()) => {
                        self.link(generation, links);
                        Event::Adopted { generation }
                    }
                    Err(NotAdopted::Refused { error, status }) => Event::AdoptFailed { generation, error, status },
                    Err(NotAdopted::Lost(error)) => return self.lose(generation, error),
                };
                self.events.push_back(event);
            }
            Action::Send { generation, message } => self.send(generation, message),
            Action::Heir { generation, dead } => self.heir(generation, dead),
            Action::Forget { generation } => self.ledgers.forget(generation),
            Action::Gro { on } => self.gro(on),
            Action::Steer(steering) => self.steer(&steering),
            Action::Kill { generation, how } => {
                self.reaper.look();
                self.children.kill(generation, how);
            }
            Action::Retire { generation } => {
                self.children.remove(generation);
                self.lost.remove(&generation);
                for warning in self.table.retire(generation) {
                    tracing::warn!("{warning}");
                }
            }
            Action::Probe { generation } => {
                let Some(health) = self.config.health.clone() else { return };
                self.probe = Some(commands::probe(health, generation, self.reaper.clone(), self.results.0.clone()));
            }
            Action::StopProbe => self.probe = None,
            Action::Reply { to, outcome } => {
                let reply = Reply::from(outcome);
                for waiter in self.waiters.remove(&to).unwrap_or_default() {
                    // A client that has gone needs no answer.
                    let _ = waiter.reply.send(reply.clone());
                }
            }
            Action::Note(note) => self.note(note),
            Action::Exit { status } => self.exit = Some(status),
        }
    }

    fn check(&mut self, generation: Generation) {
        let Some(command) = self.config.check.clone() else {
            return self.events.push_back(Event::Checked { generation, result: Ok(()) });
        };
        let limit = self.config.settings.ready_timeout;
        let running = commands::check(command, limit, generation, self.reaper.clone(), self.results.0.clone());
        self.check = Some((generation, running));
    }

    /// All numbers begin again, so the key that hides them in connection IDs must be another.
    fn rekey(&mut self) {
        match BootId::random() {
            Ok(boot) => {
                self.boot = boot;
                // Numbers begin again: what was stored under them is gone before it is stored anew.
                self.persist();
                self.table.rekey(Cipher::new(&self.config.secret.cid_key(&boot)));
            }
            // Numbers would repeat under the old key.
            Err(error) => {
                tracing::error!("the kernel gives no random numbers: {error}");
                self.exit = Some(exit::FAILURE);
            }
        }
    }

    fn spawn(&mut self, generation: Generation) -> Result<u32, SpawnError> {
        let other = |error: io::Error| SpawnError::Other(format!("the channel can't be made: {error}"));
        let (ours, theirs) = Channel::pair().map_err(other)?;
        let link = Link::new(ours).map_err(other)?;
        // Whoever is an orphan by now is not the new one's.
        self.reaper.look();
        let Started { process, file } = spawn::generation(&self.config.program, &self.config.args, theirs.into())?;
        tracing::info!("generation {generation}: process {}, {}", process.pid, file.display());
        self.reaper.generation(process.pid, generation);
        self.children.insert(generation, process.pidfd, ProcessEntry::of(process.pid), link);
        Ok(process.pid)
    }

    fn steer(&mut self, steering: &Steering) {
        let active = steering.active;
        // Steering beside a generation that still merges datagrams would hand one client's packets to another's process.
        let steered = match self.gro_error.take() {
            Some(error) => Err(error),
            None => self.table.steer(steering).map_err(|error| error.to_string()),
        };
        self.events.push_back(match steered {
            Ok(()) => Event::Steered { active },
            Err(error) => Event::SteerFailed { active, error },
        });
    }

    fn gro(&mut self, on: bool) {
        self.gro_error = match self.table.gro(on) {
            Ok(()) => None,
            // Slower, and safe.
            Err(error) if on => {
                tracing::warn!("{error}");
                None
            }
            Err(error) => Some(error.to_string()),
        };
    }

    fn adopt_head(&self, generation: Generation, protocol: u32, gro: bool, older_live: bool) -> Adopt {
        let timeout_ms = u64::try_from(self.config.settings.drain_timeout.as_millis()).unwrap_or(u64::MAX);
        Adopt {
            protocol,
            generation,
            kept: Vec::new(),
            sockets: Vec::new(),
            gro,
            drain: DrainSettings { timeout_ms, spread_ms: None },
            older_live,
            ledger: false,
            links: 0,
            more: false,
        }
    }

    fn adopt(
        &mut self,
        mut head: Adopt,
        wanted: &[Wanted],
        takes_over: Option<Generation>,
        flush: bool,
    ) -> Result<(), NotAdopted> {
        let generation = head.generation;
        let (kept, secrets) = self.secrets(generation).map_err(|error| NotAdopted::Refused {
            error: format!("the keys can't be handed over: {error}"),
            status: exit::FAILURE,
        })?;
        let granted = self.table.grant(generation, wanted, takes_over, flush);
        let granted =
            granted.map_err(|error| NotAdopted::Refused { error: error.to_string(), status: error.exit_status() })?;
        for warning in granted.warnings {
            tracing::warn!("generation {generation}: {warning}");
        }
        if head.ledger {
            // Without it the child serves just as well; its clients would hear of its death later.
            let made = self.ledgers.create(generation, self.table.shares(generation));
            head.ledger =
                made.inspect_err(|error| tracing::warn!("generation {generation} has no ledger: {error}")).is_ok();
        }
        // Before the child has them: else it could have sockets that the next supervisor does not know of.
        self.persist();
        let secrets = secrets.iter().map(AsFd::as_fd).chain(self.ledgers.file(generation)).collect();
        for part in adopt::split(Adopt { kept, ..head }, secrets, self.table.handed(generation)) {
            self.children.send(generation, ToChild::Adopt(part.adopt), &part.fds).map_err(NotAdopted::Lost)?;
        }
        Ok(())
    }

    /// The names of what is kept, and the memfds beside the first `adopt`: the keys, then one per name.
    fn secrets(&self, generation: Generation) -> io::Result<(Vec<String>, Vec<OwnedFd>)> {
        let keys = self.config.secret.child_keys(&self.boot, generation);
        let (names, kept) = self.kept.memfds()?;
        let mut memfds = vec![sealed_memfd("moq-supervise-keys", &keys.to_bytes())?];
        memfds.extend(kept);
        Ok((names, memfds))
    }

    fn send(&mut self, generation: Generation, message: ToChild) {
        if let Err(error) = self.children.send(generation, overlap::fitting(message), &[]) {
            self.lose(generation, error);
        }
    }

    /// Hands over the keys and ledgers of dead generations.
    fn heir(&mut self, generation: Generation, dead: Vec<Generation>) {
        let key = |dead: &Generation| {
            let key = self.config.secret.reset_key(&self.boot, *dead);
            sealed_memfd("moq-supervise-reset", key.as_bytes())
        };
        let keys: Vec<OwnedFd> = match dead.iter().map(key).collect() {
            Ok(keys) => keys,
            Err(error) => return tracing::warn!("generation {generation} can't be made the heir of {dead:?}: {error}"),
        };
        let (ledgers, files): (Vec<_>, Vec<_>) =
            self.ledgers.left_by(&dead, &self.table.shares(generation)).into_iter().unzip();
        let fds: Vec<BorrowedFd<'_>> = keys.iter().map(AsFd::as_fd).chain(files).collect();
        if let Err(error) = self.children.send(generation, ToChild::Heir { generations: dead, ledgers }, &fds) {
            self.lose(generation, error);
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Serving => {
                self.notify.say("READY=1");
                self.beats.started();
            }
            Note::Stopping => self.notify.say("STOPPING=1"),
            Note::Changed => {
                self.changed = true;
                self.reaper.look();
            }
            Note::Info(line) => tracing::info!("{line}"),
            Note::Warn(line) => tracing::warn!("{line}"),
        }
    }
}
