//! Upgrades, when the supervisor's own program has changed: first it replaces itself, then the relay.

use super::capture::capture;
use super::commands::Background;
use super::{Driver, News, Waiter};
use crate::control::Reply;
use crate::control::server::Saved;
use crate::core::{Event, RequestId};
use crate::state::{TriggerEntry, names};
use crate::successor::{self, Identity};
use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::time::Duration;

/// A program that can't say within this time that it can take over is not executed.
const CHECK_LIMIT: Duration = Duration::from_secs(5);
/// For the log to be written before the process has another program.
const LAST_LINES: Duration = Duration::from_millis(500);
/// For clients to take their answers before.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// An upgrade that the core does not know of yet. Those who ask meanwhile join it.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Somebody asked.
    wanted: bool,
    evict_oldest: bool,
    waiters: Vec<Waiter>,
    /// The new program is being asked whether it can take over.
    check: Option<Background>,
}

impl Held {
    /// As an earlier program of this process has left it.
    pub(super) fn restored(triggers: &[TriggerEntry], waiters: Vec<Waiter>) -> Self {
        let evict_oldest = triggers.iter().any(|trigger| trigger.evict_oldest);
        Self { wanted: !triggers.is_empty(), evict_oldest, waiters, check: None }
    }

    fn entries(&self) -> Vec<TriggerEntry> {
        let entry = |client| TriggerEntry { client, evict_oldest: self.evict_oldest };
        let clients = self.waiters.iter().map(|waiter| entry(Some(names::client(waiter.client.0))));
        // Also when nobody waits for the answer.
        let nobody = self.waiters.is_empty().then(|| entry(None));
        clients.chain(nobody).collect()
    }
}

/// Why the new program is not running yet.
enum NotExecuted {
    /// It is not the file any more that was asked: the one that is there by now has to be asked first.
    Another,
    /// It is not possible, for this reason.
    Failed(String),
}

impl Driver {
    /// Somebody wants an upgrade.
    pub(super) fn upgrade_wanted(&mut self, waiter: Option<Waiter>, evict_oldest: bool) {
        let changed = || self.own.as_ref().is_some_and(successor::Own::has_changed);
        if self.held.wanted || changed() {
            self.held.wanted = true;
            self.held.evict_oldest |= evict_oldest;
            self.held.waiters.extend(waiter);
        } else {
            let waiter = waiter.map(|waiter| self.wait(vec![waiter]));
            self.events.push_back(Event::Upgrade { waiter, evict_oldest });
        }
    }

    /// Goes on with what is held, if it is time. To be called when the core has been told everything.
    pub(super) fn attend_to_held(&mut self) {
        if self.own_trouble.is_some() && !self.own.as_ref().is_some_and(successor::Own::has_changed) {
            // The file that runs is in its place again.
            self.own_trouble = None;
        }
        if !self.held.wanted {
            return;
        }
        if self.core.is_stopping() || self.core.is_leaving() {
            // Which says no, at once.
            return self.release();
        }
        if self.held.check.is_some() {
            return;
        }
        // What is in flight would be lost: it comes first.
        if !self.core.is_settled() {
            return;
        }
        let other = self.own.clone().and_then(|own| own.other().map(|other| (own, other)));
        let Some((own, other)) = other else { return self.release() };
        tracing::info!("{} is another program by now: asking it whether it can take over", own.path().display());
        let copy = self.book.copy();
        let (reaper, news) = (self.reaper.clone(), self.news.0.clone());
        self.held.check = Some(Background::new(async move {
            let result = match copy {
                Ok(copy) => {
                    let mut args: Vec<OsString> = std::env::args_os().collect();
                    args.insert(1.min(args.len()), successor::FLAG.into());
                    let output = capture(own.path(), &args, Some(copy), CHECK_LIMIT, &reaper).await;
                    output.and_then(|output| {
                        let understood = successor::is_confirmation(&output);
                        understood
                            .then_some(other)
                            .ok_or_else(|| "is no moq-supervise that knows --upgrade-check".to_owned())
                    })
                }
                Err(error) => Err(format!("can't be asked: {error}")),
            };
            let result = result.map_err(|why| format!("{} {why}", own.path().display()));
            // The loop has ended: nobody asks any more.
            let _ = news.send(News::Successor(result)).await;
        }));
    }

    /// The new program has answered.
    pub(super) async fn successor_answered(&mut self, answer: Result<Identity, String>) {
        if self.held.check.take().is_none() {
            // Given up meanwhile.
            return;
        }
        let failure = match answer {
            // What has begun meanwhile comes first, and then it is asked again.
            Ok(_) if !self.core.is_settled() => return,
            Ok(asked) => match self.execute(asked).await {
                NotExecuted::Another => return,
                NotExecuted::Failed(why) => why,
            },
            Err(why) => why,
        };
        tracing::warn!("the supervisor is not replaced, and neither is the relay: {failure}");
        let held = std::mem::take(&mut self.held);
        for waiter in held.waiters {
            // A client that has gone needs no answer.
            let _ = waiter.reply.send(Reply::Denied { reason: "supervisor".to_owned(), message: failure.clone() });
        }
        self.own_trouble = Some(failure);
    }

    /// Executes the new program in place, if it still is the file that was `asked`. Returns only if it is not running then.
    async fn execute(&mut self, asked: Identity) -> NotExecuted {
        let Some(own) = self.own.clone() else { return NotExecuted::Failed("its path is not known".to_owned()) };
        tracing::info!("executing {}", own.path().display());
        let blocked = match self.signals.block().await {
            Ok(blocked) => blocked,
            Err(error) => return NotExecuted::Failed(format!("signals can't be blocked: {error}")),
        };
        self.log.flush(LAST_LINES).await;
        self.quiesce().await;
        // From here on nobody else runs.
        if own.other() != Some(asked) {
            tracing::info!("{} is another program again", own.path().display());
            drop(blocked);
            return NotExecuted::Another;
        }
        let error = self.hand_over(&own);
        self.persist();
        drop(blocked);
        NotExecuted::Failed(format!("{} can't be executed: {error}", own.path().display()))
    }

    /// Answers what clients have asked, so that they can be handed over: those that are left wait for the upgrade.
    async fn quiesce(&mut self) {
        let end = self.now().after(LAST_ANSWERS);
        loop {
            while let Ok(asked) = self.requests.try_recv() {
                self.asked(asked);
            }
            if self.server.busy() <= self.held.waiters.len() || self.now() >= end {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn hand_over(&mut self, own: &successor::Own) -> String {
        let control = self.server.save().entry;
        let triggers = self.held.entries();
        self.persist_for_exec(control, triggers);
        if let Some(trouble) = self.book.trouble() {
            return trouble.to_owned();
        }
        let Saved { sockets, clients, .. } = self.server.save();
        let mut fds = self.named();
        fds.extend(self.table.offered_sockets());
        fds.extend(sockets);
        fds.extend(clients.iter().map(|(name, fd)| (name.clone(), fd.as_fd())));
        let Err(error) = successor::execute(own, std::env::args_os(), std::env::vars_os(), &fds);
        error.to_string()
    }

    /// Gives what is held to the core.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        let waiter: Option<RequestId> = (!held.waiters.is_empty()).then(|| self.wait(held.waiters));
        self.own_trouble = None;
        self.events.push_back(Event::Upgrade { waiter, evict_oldest: held.evict_oldest });
    }
}
