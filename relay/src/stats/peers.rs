//! What the generations beside this one counted, row by row: read from the broadcasts that they publish for each other.

use super::PRIVATE;
use super::frames::Frames;
use moq_net::origin;
use protocol::message::Generation;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The only track of such a broadcast: all frames together.
pub(super) const TRACK: &str = "counters.json";

/// Where a generation publishes them. The token is known to the generations of this node alone, so that nodes of one
/// cluster don't meet here, and nobody else asks.
pub(super) fn path(token: &str, generation: Generation) -> String {
    format!("{PRIVATE}/{token}/{generation}")
}

/// The readers.
pub(super) struct Peers {
    origin: origin::Consumer,
    token: String,
    readers: BTreeMap<Generation, Reader>,
}

struct Reader {
    /// `None` until the first has come.
    last: watch::Receiver<Option<Frames>>,
    task: JoinHandle<()>,
}

impl Peers {
    /// Nobody is read yet.
    pub(super) const fn new(origin: origin::Consumer, token: String) -> Self {
        Self { origin, token, readers: BTreeMap::new() }
    }

    /// Reads those that live, and gives what those that don't any more said last.
    pub(super) fn follow(&mut self, live: &BTreeSet<Generation>) -> Frames {
        let mut gone = Frames::default();
        self.readers.retain(|generation, reader| {
            let lives = live.contains(generation);
            if !lives {
                reader.task.abort();
                reader.last.borrow().iter().for_each(|last| gone.add(last));
            }
            lives
        });
        gone.close();
        for generation in live {
            if !self.readers.contains_key(generation) {
                let (says, last) = watch::channel(None);
                let task = tokio::spawn(read(self.origin.clone(), path(&self.token, *generation), says));
                self.readers.insert(*generation, Reader { last, task });
            }
        }
        gone
    }

    /// What they counted, together.
    pub(super) fn frames(&self) -> Frames {
        let mut all = Frames::default();
        for reader in self.readers.values() {
            reader.last.borrow().iter().for_each(|last| all.add(last));
        }
        all
    }

    /// Whether something is known of each.
    pub(super) fn complete(&self) -> bool {
        self.readers.values().all(|reader| reader.last.borrow().is_some())
    }
}

/// Reads for ever: what ends here begins again with the link, or ends with the generation.
async fn read(origin: origin::Consumer, path: String, says: watch::Sender<Option<Frames>>) {
    loop {
        if let Err(error) = follow(&origin, &path, &says).await {
            tracing::debug!(path, %error, "counters of another generation");
            if matches!(error, moq_net::Error::Closed) {
                return;
            }
        }
        // Its broadcast ended while the generation lives: with the link between us, say. No hurry, and no spinning.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

async fn follow(
    origin: &origin::Consumer,
    path: &str,
    says: &watch::Sender<Option<Frames>>,
) -> Result<(), moq_net::Error> {
    let broadcast = origin.routed_broadcast(path).await?;
    let track = broadcast.track(TRACK)?.subscribe(None).await?;
    let mut frames = moq_json::snapshot::Consumer::new(track, moq_json::snapshot::consumer::Config::default());
    loop {
        match frames.next().await {
            Ok(frame @ Some(_)) => drop(says.send_replace(frame)),
            Ok(None) => return Ok(()),
            Err(moq_json::Error::Net(error)) => return Err(error),
            Err(error) => {
                tracing::warn!(path, %error, "counters of another generation can't be read");
                return Ok(());
            }
        }
    }
}
