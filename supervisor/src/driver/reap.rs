//! Every ended child is reaped here and nowhere else: generations, commands, and, because the supervisor is PID 1 or a
//! subreaper (PR_SET_CHILD_SUBREAPER(2const)), whatever orphans they leave behind.

use crate::core::ExitStatus;
use crate::sys::pidfd::{Pidfd, kill_group};
use crate::sys::reap;
use protocol::message::Generation;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Who the children are. Clones share the table; the driver's thread alone uses it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reaper(Arc<Mutex<HashMap<u32, Known>>>);

#[derive(Debug)]
enum Known {
    Generation(Generation),
    Command(oneshot::Sender<ExitStatus>),
    /// It ends after us.
    Apart,
}

impl Reaper {
    /// This child is that generation. To be called before the loop can see its end: right after the spawn.
    pub(super) fn generation(&self, pid: u32, generation: Generation) {
        self.table().insert(pid, Known::Generation(generation));
    }

    /// This child is a command; its end comes through the channel.
    pub(super) fn command(&self, pid: u32) -> oneshot::Receiver<ExitStatus> {
        let (ended, end) = oneshot::channel();
        self.table().insert(pid, Known::Command(ended));
        end
    }

    /// This child is to outlive us, and is no generation.
    pub(super) fn apart(&self, pid: u32) {
        self.table().insert(pid, Known::Apart);
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
                Ok(None) => return ended,
                Err(error) => {
                    tracing::warn!("waiting for ended processes failed: {error}");
                    return ended;
                }
            };
            let known = self.table().remove(&pid);
            if known.is_some() {
                // Empty, as a rule.
                let _ = kill_group(pid, libc::SIGKILL);
            }
            let status = match reap::reap(pid) {
                Ok(Some(status)) => status,
                Ok(None) | Err(_) => ExitStatus::Unknown,
            };
            match known {
                Some(Known::Generation(generation)) => ended.push((generation, status)),
                // Nobody waits for a command that was given up.
                Some(Known::Command(end)) => drop(end.send(status)),
                Some(Known::Apart) => tracing::debug!("process {pid}, which ends what is left, has ended"),
                None => tracing::debug!("reaped orphan {pid}"),
            }
        }
    }

    /// Kills the orphans that are ours by now and alive: processes that left their generation's group (setsid(2)).
    /// How many there were; their own children become ours in turn, so this is repeated until there are none.
    pub(super) fn sweep(&self) -> usize {
        let mut killed = 0;
        for pid in children() {
            if self.table().contains_key(&pid) {
                continue;
            }
            // Our child, and only this thread reaps: the number is still its own.
            if Pidfd::open(pid).and_then(|orphan| orphan.send_signal(libc::SIGKILL)).is_ok() {
                killed += 1;
            }
        }
        killed
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Our children (proc_pid_task_tid_children(5)), ended ones that wait to be reaped included. The kernel keeps a list
/// per thread; an orphan goes to any of them.
fn children() -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut pids = Vec::new();
    for task in tasks.flatten() {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        pids.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    pids
}
