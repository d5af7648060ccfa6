//! Ends of generations that an earlier supervisor process started: they are not our children, so waitid(2) tells nothing
//! of them.

use super::News;
use super::commands::Background;
use super::reap::Reaper;
use crate::core::ExitStatus;
use crate::state::{ProcessEntry, Whereabouts};
use crate::sys::pidfd::Pidfd;
use crate::sys::watch::watch_process;
use protocol::message::Generation;
use std::os::fd::AsFd as _;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// The kernel tells how a process ended once its parent has reaped it, which comes soon after the end.
const REAPED_WITHIN: Duration = Duration::from_secs(1);
/// Between two attempts to find a process.
const SEARCH_AGAIN: Duration = Duration::from_secs(1);
/// A process whose channel is closed is most likely about to be seen to have ended: several attempts from then on.
pub(super) const GIVE_UP: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Has the end of this process noticed: as that of a child if it is ours, else by a task that says when it ends, and how if the
/// kernel does.
pub(super) fn watch(
    generation: Generation,
    process: &Pidfd,
    entry: Option<ProcessEntry>,
    reaper: &Reaper,
    news: &mpsc::Sender<News>,
) {
    if let Some(entry) = entry
        && process.is_child()
    {
        return reaper.generation(entry.pid, generation);
    }
    let process = match process.as_fd().try_clone_to_owned() {
        Ok(process) => Pidfd::from(process),
        Err(error) => return tracing::warn!("generation {generation} can't be watched: {error}"),
    };
    let news = news.clone();
    tokio::spawn(async move {
        let status = ended(process).await;
        // The loop has ended: nobody asks any more.
        let _ = news.send(News::Ended(generation, status)).await;
    });
}

/// Says what has become of a process that could not be found, once that is known; until then it is asked again and again,
/// since descriptors may have been used up, say.
pub(super) fn search(generation: Generation, entry: ProcessEntry, news: mpsc::Sender<News>) -> Background {
    Background::new(async move {
        let found = loop {
            sleep(SEARCH_AGAIN).await;
            match entry.find() {
                Whereabouts::Lives(process) => break News::Found(generation, process),
                Whereabouts::Ended => break News::Ended(generation, ExitStatus::Unknown),
                Whereabouts::Unknown(_) => {}
            }
        };
        // The loop has ended: nobody asks any more.
        let _ = news.send(found).await;
    })
}

async fn ended(process: Pidfd) -> ExitStatus {
    let process = match watch_process(process) {
        Ok(process) => process,
        Err(error) => {
            tracing::warn!("a generation's process can't be watched: {error}");
            return std::future::pending().await;
        }
    };
    // Readable from its end on.
    let _ = process.readable().await;
    let process = process.get_ref();
    let mut waited = Duration::ZERO;
    let status = loop {
        match process.exit_status() {
            Some(status) => break status,
            None if waited >= REAPED_WITHIN => break ExitStatus::Unknown,
            None => sleep(LOOK_AGAIN).await,
        }
        waited += LOOK_AGAIN;
    };
    // What it left behind in its group, as for our own children. The group can't be another's: it is named by the pidfd.
    let _ = process.signal_group(libc::SIGKILL);
    status
}
