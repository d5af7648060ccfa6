//! The link to one peer: what the policy decides, done.

use super::dialer::{DialError, Dialed, Dialer, ending};
use super::peer::{Peer, Shown, Token};
use super::peers::{Held, Peers};
use crate::drain::{Registry, sleep_until};
use crate::reconnect::{self, Action, Direction, Event, Id, Luck, Manner, Reconnect, Redirect, Report};
use crate::role::Role;
use moq_net::goaway::Goaway;
use rand::Rng;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use url::Url;

/// How every link behaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) reconnect: reconnect::Settings,
    pub(super) redirect: Redirect,
}

/// What a link has to work with.
pub(super) struct Link {
    pub(super) dialer: Arc<Dialer>,
    pub(super) settings: Settings,
    pub(super) peer: Peer,
    pub(super) token: Option<Token>,
    /// The open sessions of all links.
    pub(super) peers: Arc<Peers>,
    /// Becomes true when the first dial has come to something.
    pub(super) settled: watch::Sender<bool>,
}

/// What a link obeys.
#[derive(Clone)]
pub(super) struct Orders {
    pub(super) role: watch::Receiver<Role>,
    /// True: the relay ends.
    pub(super) stop: watch::Receiver<bool>,
    /// Knows when who is told of a drain.
    pub(super) registry: Arc<Registry>,
}

/// Why a link has stopped dialing.
enum Pause {
    /// The relay ends.
    Stop,
    /// The relay drains.
    Drain,
    /// The peer was left for good.
    Left,
}

impl Orders {
    /// Waits for a reason to stop dialing.
    async fn pause(&mut self) -> Pause {
        // An owner that is gone has no use for links either.
        tokio::select! {
            biased;
            () = async { drop(self.stop.wait_for(|stop| *stop).await) } => Pause::Stop,
            () = async { drop(self.role.wait_for(|role| role.is_draining()).await) } => Pause::Drain,
        }
    }

    /// Waits for the end of a drain; false: the relay ends.
    async fn resumed(&mut self) -> bool {
        tokio::select! {
            biased;
            () = async { drop(self.stop.wait_for(|stop| *stop).await) } => false,
            resumed = async { self.role.wait_for(|role| !role.is_draining()).await.is_ok() } => resumed,
        }
    }
}

impl Link {
    /// Keeps the link until the relay ends; then closes its sessions, with what they have queued delivered.
    ///
    /// A drain stops the dialing, and tells the peer that this process is leaving, so that it takes from the successor
    /// what it can. The sessions stay: what the last clients watch may come over them.
    pub(super) async fn run(self, mut orders: Orders) {
        let link = Arc::new(self);
        let mut before = Vec::new();
        loop {
            let mut run = Run::new(link.clone(), before);
            let pause = run.keep(&mut orders).await;
            before = run.into_sessions();
            match pause {
                Pause::Stop | Pause::Left => return close(before).await,
                Pause::Drain => {}
            }
            let registry = orders.registry.clone();
            let resumed = tokio::select! {
                biased;
                resumed = orders.resumed() => resumed,
                never = tell(&before, &registry) => match never {},
            };
            if !resumed {
                return close(before).await;
            }
        }
    }
}

/// What a dial came to.
enum Reached {
    /// A session.
    Session(Box<Dialed>),
    /// A peer that is leaving.
    Leaving(Direction<Url>),
}

impl Link {
    async fn dial(&self, place: &Url, manner: Manner) -> Result<Reached, DialError> {
        if manner == Manner::Careful
            && let Some(goaway) = self.dialer.try_out(place).await?
        {
            return Ok(Reached::Leaving(self.direction(&goaway, place)));
        }
        Ok(Reached::Session(Box::new(self.dialer.dial(place, self.peer.cost()).await?)))
    }

    fn direction(&self, goaway: &Goaway, place: &Url) -> Direction<Url> {
        let direction = self.settings.redirect.direction(goaway.uri(), place, self.dialer.pins());
        tracing::info!(peer = %Shown(place), asks = %direction, "the peer is leaving");
        direction
    }
}

/// Tells each session that this process is leaving, when the time has come.
async fn tell(sessions: &[moq_net::Session], registry: &Registry) -> Infallible {
    // No time: the drain is over, and so is this, in a moment.
    sleep_until(registry.tells_dialed()).await;
    for session in sessions {
        // An error: it was told in an earlier drain, or is closed.
        drop(session.drain().send(Goaway::new()));
    }
    std::future::pending().await
}

/// Closes sessions, each with what it has queued delivered, for at most the second that `moq-net` takes for it.
async fn close(sessions: Vec<moq_net::Session>) {
    let mut closing: JoinSet<_> = sessions.into_iter().map(moq_net::Session::close).collect();
    while closing.join_next().await.is_some() {}
}

/// What the tasks of a run have to say.
enum News {
    Event(Event<Url>),
    Dialed(Id, Url, Box<Dialed>),
}

/// From a beginning of the policy to a pause.
struct Run {
    link: Arc<Link>,
    policy: Reconnect<Url>,
    open: BTreeMap<Id, (moq_net::Session, Held)>,
    /// Sessions of the run before. They were told that we leave, and serve until there are others.
    before: Vec<moq_net::Session>,
    /// Dials and what watches the sessions; not what drives them, which outlives a run.
    tasks: JoinSet<()>,
    sender: mpsc::UnboundedSender<News>,
    receiver: mpsc::UnboundedReceiver<News>,
}

impl Run {
    fn new(link: Arc<Link>, before: Vec<moq_net::Session>) -> Self {
        let home = link.peer.url(link.token.as_ref());
        let policy = Reconnect::new(link.settings.reconnect, home);
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { link, policy, open: BTreeMap::new(), before, tasks: JoinSet::new(), sender, receiver }
    }

    async fn keep(&mut self, orders: &mut Orders) -> Pause {
        let mut actions = self.policy.begin(Instant::now());
        loop {
            for action in actions {
                if let Some(pause) = self.perform(action) {
                    return pause;
                }
            }
            let news = tokio::select! {
                biased;
                pause = orders.pause() => return pause,
                Some(news) = self.receiver.recv() => news,
                () = sleep_until(self.policy.deadline()) => News::Event(Event::Wake),
                // Else their results would pile up.
                Some(_) = self.tasks.join_next() => {
                    actions = Vec::new();
                    continue;
                }
            };
            // The first news are of the first dial.
            self.link.settled.send_if_modified(|settled| !std::mem::replace(settled, true));
            let event = match news {
                News::Event(event) => event,
                News::Dialed(id, place, dialed) => self.opened(id, place, *dialed),
            };
            if let Event::Closed(id, _) = &event {
                self.open.remove(id);
            }
            let luck = Luck::new(rand::rng().random()).unwrap_or(Luck::LONG);
            actions = self.policy.handle(Instant::now(), event, luck);
        }
    }

    fn perform(&mut self, action: Action<Url>) -> Option<Pause> {
        match action {
            Action::Dial(id, place, manner) => {
                tracing::info!(peer = %Shown(&place), ?manner, "dialing");
                let (link, sender) = (self.link.clone(), self.sender.clone());
                self.tasks.spawn(async move {
                    let news = match link.dial(&place, manner).await {
                        Ok(Reached::Session(dialed)) => News::Dialed(id, place, dialed),
                        Ok(Reached::Leaving(direction)) => News::Event(Event::Goaway(id, direction)),
                        Err(error) => {
                            tracing::info!(peer = %Shown(&place), %error, "failed to dial");
                            News::Event(Event::Failed(id, error.failure()))
                        }
                    };
                    // The receiver is gone after a pause.
                    drop(sender.send(news));
                });
            }
            Action::Retire(id) => {
                if let Some((session, _)) = self.open.remove(&id) {
                    self.tasks.spawn(async move { drop(session.close().await) });
                }
            }
            Action::Report(report) => self.report(&report),
            Action::End(why) => {
                let why = why.map_or_else(|| "it is leaving".to_owned(), |why| why.to_string());
                tracing::warn!(peer = %self.link.peer, why, "left a peer for good, as --connect-once says");
                return Some(Pause::Left);
            }
        }
        None
    }

    fn opened(&mut self, id: Id, place: Url, (session, driver): Dialed) -> Event<Url> {
        let held = self.link.peers.hold(&place);
        tracing::info!(peer = %Shown(&place), connection = held.id(), version = %session.version(), "peer connected");
        tokio::spawn(moq_net::time::run(driver));
        self.open.insert(id, (session.clone(), held));
        for session in self.before.drain(..) {
            self.tasks.spawn(async move { drop(session.close().await) });
        }
        let (link, sender) = (self.link.clone(), self.sender.clone());
        self.tasks.spawn(async move {
            if let Some(goaway) = session.draining().recv().await {
                drop(sender.send(News::Event(Event::Goaway(id, link.direction(&goaway, &place)))));
            }
            let error = session.closed().await;
            tracing::info!(peer = %Shown(&place), %error, "peer disconnected");
            drop(sender.send(News::Event(Event::Closed(id, ending(&error)))));
        });
        Event::Established(id)
    }

    fn report(&self, report: &Report) {
        let peer = &self.link.peer;
        match report {
            Report::Moving => tracing::debug!(%peer, "its session serves until there is another one"),
            Report::ServingOut => tracing::info!(%peer, "its session serves until the peer closes it"),
            Report::Waiting(wait) => tracing::debug!(%peer, ?wait, "dialing after a pause"),
            Report::Ended(error, rest) => {
                tracing::warn!(%peer, %error, "no link with a peer: dialing anew in {rest:?}");
            }
        }
    }

    fn into_sessions(self) -> Vec<moq_net::Session> {
        self.open.into_values().map(|(session, _)| session).chain(self.before).collect()
    }
}
