//! What the supervisor says, with the links first.

use protocol::child::{Command, Receiver};
use protocol::message::Generation;
use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long the links that were promised may take: they follow `adopt` at once.
const LINKS: Duration = Duration::from_secs(1);

/// The commands of the supervisor, in their order.
#[derive(Debug)]
pub(crate) struct Inbox {
    receiver: Receiver,
    /// What came before the last of the links.
    early: VecDeque<Command>,
}

impl Inbox {
    /// Of that channel.
    pub(crate) const fn new(receiver: Receiver) -> Self {
        Self { receiver, early: VecDeque::new() }
    }

    /// The ends of that many links. Fewer, if they don't come in time or the supervisor is gone.
    pub(crate) async fn links(&mut self, count: u16) -> Vec<(Generation, UnixStream)> {
        let mut links = Vec::new();
        let all = async {
            while links.len() < usize::from(count) {
                match self.receiver.next().await {
                    Some(Command::Link { generation, stream }) => links.push((generation, stream)),
                    Some(other) => self.early.push_back(other),
                    None => return,
                }
            }
        };
        if tokio::time::timeout(LINKS, all).await.is_err() {
            tracing::warn!("not all links came that the supervisor had promised");
        }
        links
    }

    /// The next command; `None`: the supervisor is gone. Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Command> {
        match self.early.pop_front() {
            Some(early) => Some(early),
            None => self.receiver.next().await,
        }
    }
}
