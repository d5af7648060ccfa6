//! Every ended child is reaped here and nowhere else: generations, commands, and, because the supervisor is PID 1 or a
//! subreaper (PR_SET_CHILD_SUBREAPER(2const)), whatever orphans they leave behind.

use super::lineage::{Lineage, Orphans, Process, Tree};
use crate::core::ExitStatus;
use crate::stat::Stat;
use crate::sys::pidfd::{Pidfd, kill_group};
use crate::sys::reap;
use protocol::message::Generation;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Who the children are. Clones share the table; the driver's thread alone uses it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reaper(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    known: HashMap<u32, Known>,
    lineage: Lineage,
}

#[derive(Debug)]
enum Known {
    Generation(Generation),
    /// Its end has been told already.
    Told(Generation),
    Command(oneshot::Sender<ExitStatus>),
    /// It ends after us.
    Apart,
}

impl Reaper {
    /// For a process that has no generations yet. Children that it has already, from whoever executed it, are left
    /// alone.
    pub(super) fn new() -> Self {
        let reaper = Self::default();
        reaper.look();
        reaper
    }

    /// This child is that generation. To be called before the loop can see its end: right after the spawn.
    pub(super) fn generation(&self, pid: u32, generation: Generation) {
        self.table().known.insert(pid, Known::Generation(generation));
    }

    /// The number of this generation's process, if it is our child and its end has not been told.
    pub(super) fn pid(&self, generation: Generation) -> Option<u32> {
        let table = self.table();
        let mut known = table.known.iter();
        known.find_map(|(pid, known)| matches!(known, Known::Generation(other) if *other == generation).then_some(*pid))
    }

    /// The end of this generation is told before it can be reaped: its process group is killed now, and [`Self::collect`]
    /// will keep silent about it. False if that is not for us to tell, or has been told.
    pub(super) fn tell(&self, generation: Generation) -> bool {
        let Some(pid) = self.pid(generation) else { return false };
        self.table().known.insert(pid, Known::Told(generation));
        let _ = kill_group(pid, libc::SIGKILL);
        true
    }

    /// Whether all whose end was told have been reaped.
    pub(super) fn is_even(&self) -> bool {
        !self.table().known.values().any(|known| matches!(known, Known::Told(_)))
    }

    /// This child is a command; its end comes through the channel.
    pub(super) fn command(&self, pid: u32) -> oneshot::Receiver<ExitStatus> {
        let (ended, end) = oneshot::channel();
        self.table().known.insert(pid, Known::Command(ended));
        end
    }

    /// This child is to outlive us, and is no generation.
    pub(super) fn apart(&self, pid: u32) {
        self.table().known.insert(pid, Known::Apart);
    }

    /// Notes what the generations have started. To be called before another is started and whenever the state of one
    /// changes, so that what leaves its process group can be told apart at its end.
    pub(super) fn look(&self) {
        let mut table = self.table();
        let Table { known, lineage } = &mut *table;
        let live = known.iter().filter_map(|(pid, known)| match known {
            Known::Generation(generation) | Known::Told(generation) => Some((*generation, *pid)),
            Known::Command(_) | Known::Apart => None,
        });
        let live: Vec<_> = live.collect();
        let list =
            || -> Vec<u32> { children("/proc/self/task").into_iter().filter(|pid| !known.contains_key(pid)).collect() };
        lineage.look(&Proc, &live, Orphans { list: &list, may_be_anybodys: std::process::id() == 1 });
    }

    /// Reaps whoever has ended. SIGCHLD is merged when several children end at once, so this asks until none is left.
    ///
    /// The process group of a generation or command is killed before its leader is reaped: until then no other
    /// process or group can get the number.
    pub(super) fn collect(&self) -> Vec<(Generation, ExitStatus)> {
        let mut ended = Vec::new();
        loop {
            let pid = match reap::next_ended() {
                Ok(Some(pid)) => pid,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("waiting for ended processes failed: {error}");
                    break;
                }
            };
            if matches!(self.table().known.get(&pid), Some(Known::Generation(_) | Known::Told(_))) {
                // Its orphans are ours since before its end could be seen, and it still counts as one that lives.
                self.look();
            }
            let known = self.table().known.remove(&pid);
            if known.is_some() {
                // Empty, as a rule.
                let _ = kill_group(pid, libc::SIGKILL);
            }
            let status = match reap::reap(pid) {
                Ok(Some(status)) => status,
                Ok(None) | Err(_) => ExitStatus::Unknown,
            };
            match known {
                Some(Known::Generation(generation)) => {
                    self.table().lineage.ended(generation);
                    ended.push((generation, status));
                }
                Some(Known::Told(generation)) => {
                    tracing::debug!("generation {generation} is reaped");
                    self.table().lineage.ended(generation);
                }
                // Nobody waits for a command that was given up.
                Some(Known::Command(end)) => drop(end.send(status)),
                Some(Known::Apart) => tracing::debug!("process {pid}, which ends what is left, has ended"),
                None => tracing::debug!("reaped orphan {pid}"),
            }
        }
        self.end_left_behind();
        ended
    }

    /// Kills what the generations that have ended left behind. The end of each is a reason to look again, since it may
    /// have started others meanwhile.
    fn end_left_behind(&self) {
        if self.table().lineage.left_behind().is_empty() {
            return;
        }
        self.look();
        let left_behind = self.table().lineage.left_behind();
        for Process { pid, start } in left_behind {
            // What the descriptor is of can't be another by the time that the number still is of the same one.
            let Ok(process) = Pidfd::open(pid) else { continue };
            if Proc.start(pid) == Some(start) && process.send_signal(libc::SIGKILL).is_ok() {
                tracing::info!("process {pid} was left behind by a generation and is killed");
            }
        }
    }

    /// Kills the orphans that are ours by now and alive: processes that left their generation's group (setsid(2)).
    /// How many there were; their own children become ours in turn, so this is repeated until there are none.
    pub(super) fn sweep(&self) -> usize {
        let mut killed = 0;
        for pid in children("/proc/self/task") {
            if self.table().known.contains_key(&pid) {
                continue;
            }
            // Our child, and only this thread reaps: the number is still its own.
            if Pidfd::open(pid).and_then(|orphan| orphan.send_signal(libc::SIGKILL)).is_ok() {
                killed += 1;
            }
        }
        killed
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The processes as /proc shows them.
struct Proc;

impl Tree for Proc {
    fn children(&self, pid: u32) -> Vec<u32> {
        children(&format!("/proc/{pid}/task"))
    }

    fn start(&self, pid: u32) -> Option<u64> {
        Stat::of(pid).map(|stat| stat.started)
    }
}

/// The children of a process (proc_pid_task_tid_children(5)) by its folder of tasks, ended ones that wait to be reaped
/// included. The kernel keeps a list per thread; an orphan goes to any of them.
fn children(tasks: &str) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(tasks) else { return Vec::new() };
    let mut pids = Vec::new();
    for task in tasks.flatten() {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        pids.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    pids
}
