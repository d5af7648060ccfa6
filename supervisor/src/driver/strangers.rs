//! Ends of generations that an earlier supervisor process started: they are not our children, so waitid(2) tells nothing
//! of them.

use super::News;
use crate::core::ExitStatus;
use crate::sys::pidfd::Pidfd;
use crate::sys::watch::watch_process;
use protocol::message::Generation;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// The kernel tells how a process ended once its parent has reaped it, which comes soon after the end.
const REAPED_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Says when this process ends, and how if the kernel does.
pub(super) fn watch(generation: Generation, process: Pidfd, news: mpsc::Sender<News>) {
    tokio::spawn(async move {
        let status = ended(process).await;
        // The loop has ended: nobody asks any more.
        let _ = news.send(News::Ended(generation, status)).await;
    });
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
