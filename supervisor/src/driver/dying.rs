//! Generations whose process runs no more, while the kernel still takes its memory apart.
//!
//! waitid(2) tells of a death after that: measured 30 ms for a relay with 200 sessions, 110 ms for 600 MB. The sockets
//! wait meanwhile. Of a process with several threads, all but the last are gone at once, and each tells
//! (PIDFD_THREAD, Linux 6.9). What that means is looked up: a thread may end alone. Who has one thread, or an older kernel,
//! is heard of by waitid(2), as everybody is in the end.

use crate::core::ExitStatus;
use crate::stat::Task;
use crate::sys::pidfd::Pidfd;
use crate::sys::watch::watch_process;
use protocol::message::Generation;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Sleep, sleep};

/// Threads to watch. The one that takes the memory apart tells last, so two are enough; another may end alone.
const THREADS: usize = 3;
/// Between two looks at a process of which some threads have ended and others are about to.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Looks, before it is left to waitid(2).
const LOOKS: u32 = 100;

/// A process whose oldest threads end as often as this is one whose threads come and go: it is left to waitid(2) too.
const REFILLS: u32 = 100;

/// The processes that are watched.
#[derive(Debug, Default)]
pub(super) struct Dying(BTreeMap<Generation, Watched>);

#[derive(Debug)]
struct Watched {
    pid: u32,
    threads: Vec<AsyncFd<Pidfd>>,
    /// How often more others are taken for those that have ended alone.
    refills: u32,
    /// When to look again, and how often more.
    again: Option<(Pin<Box<Sleep>>, u32)>,
}

impl Dying {
    /// Watches the process of this generation, which is our child and has not been reaped, from now on.
    pub(super) fn watch(&mut self, generation: Generation, pid: u32) {
        self.0.insert(generation, Watched { pid, threads: threads(pid), refills: REFILLS, again: None });
    }

    /// It has been reaped.
    pub(super) fn forget(&mut self, generation: Generation) {
        self.0.remove(&generation);
    }

    /// The next one that has run its last instruction, and what its status will be. Safe to cancel; pending while there is
    /// none.
    pub(super) async fn next(&mut self) -> (Generation, ExitStatus) {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Generation, ExitStatus)> {
        for (generation, watched) in &mut self.0 {
            if let Poll::Ready(status) = watched.poll(cx) {
                let generation = *generation;
                self.0.remove(&generation);
                return Poll::Ready((generation, status));
            }
        }
        Poll::Pending
    }
}

/// Some threads of this process that tell of their own end.
fn threads(pid: u32) -> Vec<AsyncFd<Pidfd>> {
    let others = Task::all(pid).into_iter().filter(|task| task.tid != pid).take(THREADS);
    others.filter_map(|task| watch_process(Pidfd::open_thread(task.tid).ok()?).ok()).collect()
}

impl Watched {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ExitStatus> {
        loop {
            let looks = if self.has_one_ended(cx) {
                LOOKS
            } else {
                let Some((time, looks)) = &mut self.again else { return Poll::Pending };
                ready!(time.as_mut().poll(cx));
                *looks
            };
            self.again = None;
            match Fate::of(&Task::all(self.pid)) {
                Fate::Over(status) => return Poll::Ready(status),
                Fate::Ends if looks > 1 => self.again = Some((Box::pin(sleep(LOOK_AGAIN)), looks - 1)),
                Fate::Ends => {}
                Fate::Lives if self.refills == 0 => self.threads.clear(),
                Fate::Lives => {
                    self.refills -= 1;
                    self.threads = threads(self.pid);
                }
            }
        }
    }

    /// Forgets the threads that have ended.
    fn has_one_ended(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.threads.len();
        self.threads.retain(|thread| thread.poll_read_ready(cx).is_pending());
        self.threads.len() < before
    }
}

/// What becomes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Threads come and go.
    Lives,
    /// All that run are about to be killed.
    Ends,
    /// None will run again; its status is this one.
    Over(ExitStatus),
}

impl Fate {
    fn of(tasks: &[Task]) -> Self {
        if tasks.iter().any(|task| !task.is_over && !task.is_killed) {
            return Self::Lives;
        }
        if tasks.iter().any(|task| !task.is_over) {
            return Self::Ends;
        }
        // The kernel shows 0 also to who may not know it, and a thread that ended alone has its own.
        let codes: Vec<u32> = tasks.iter().map(|task| task.exit_code).filter(|code| *code != 0).collect();
        match codes.as_slice() {
            [code, rest @ ..] if rest.iter().all(|other| other == code) => Self::Over(ExitStatus::from_wait(*code)),
            [] | [..] => Self::Lives,
        }
    }
}

#[cfg(test)]
mod tests;
