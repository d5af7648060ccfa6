//! Real processes with threads, and what is known of them by when.

use super::{Dying, Fate};
use crate::core::ExitStatus;
use crate::stat::{Stat, Task};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::message::Generation;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);
const ONE: Generation = Generation(1);

/// Memory whose end takes the kernel long enough to be seen, in MiB.
const LARGE: usize = 512;

/// A process with so many MiB of memory and three threads beside the first. One of those ends at the first line on its
/// standard input, and the process with that status at the second.
#[expect(clippy::disallowed_methods, reason = "tests start processes of their own")]
fn process(memory: usize, status: u8) -> Child {
    let script = format!(
        "import os, sys, threading, time\n\
         held = b'x' * ({memory} << 20)\n\
         short, long = threading.Event(), threading.Event()\n\
         for event in [short, long, long]: threading.Thread(target=event.wait, daemon=True).start()\n\
         print(flush=True)\n\
         sys.stdin.readline()\n\
         short.set()\n\
         sys.stdin.readline()\n\
         os._exit({status})"
    );
    let mut command = Command::new("python3");
    command.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it has its threads");
    child
}

fn line(child: &mut Child) {
    child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
}

/// The time is the kernel's to take apart what it held; nothing of it is needed to serve the clients.
#[tokio::test]
async fn a_killed_process_is_told_before_its_memory_is_gone() {
    let mut child = process(LARGE, 0);
    let mut dying = Dying::default();
    dying.watch(ONE, child.id());
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGKILL).expect("it runs");
    let told = timeout(PATIENCE, dying.next()).await.expect("told");
    // Ended means that it can be waited for.
    let is_waited_for = Stat::of(child.id()).is_none_or(|stat| stat.ended) && child.try_wait().expect("ours").is_some();
    assert_eq!(told, (ONE, ExitStatus::Signal(9)));
    assert!(!is_waited_for, "waitid(2) would have been as quick");
    child.wait().expect("ours");
}

/// A worker may end alone.
#[tokio::test]
async fn a_thread_that_ends_is_no_end_of_its_process() {
    let mut child = process(1, 7);
    let mut dying = Dying::default();
    dying.watch(ONE, child.id());
    let threads = Task::all(child.id()).len();
    line(&mut child);
    let fewer = async {
        while Task::all(child.id()).len() == threads {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, fewer).await.expect("one thread ends");
    assert!(timeout(Duration::from_millis(100), dying.next()).await.is_err(), "the others run");
    line(&mut child);
    // Python's own end may be quicker than this is told; then waitid(2) tells.
    if let Ok(told) = timeout(Duration::from_secs(1), dying.next()).await {
        assert_eq!(told, (ONE, ExitStatus::Code(7)));
    }
    assert_eq!(child.wait().expect("ours").code(), Some(7));
}

/// What nobody has proof of is left to waitid(2): to take one that runs for dead would have another serve its sockets.
#[test]
fn a_process_is_over_when_every_thread_is_and_they_agree_how() {
    let runs = Task { tid: 1, is_over: false, is_killed: false, exit_code: 0 };
    let killed = Task { is_killed: true, ..runs };
    let over = |exit_code| Task { is_over: true, exit_code, ..runs };
    for (tasks, fate) in [
        (vec![runs, runs], Fate::Lives),
        (vec![over(9), runs], Fate::Lives),
        (vec![over(9), killed], Fate::Ends),
        (vec![over(9), over(9)], Fate::Over(ExitStatus::Signal(9))),
        // The one that the process began with may have ended alone before.
        (vec![over(0), over(9)], Fate::Over(ExitStatus::Signal(9))),
        (vec![over(11 | 0x80)], Fate::Over(ExitStatus::Signal(11))),
        (vec![over(3 << 8), over(3 << 8)], Fate::Over(ExitStatus::Code(3))),
        // 0: or it is not for us to know.
        (vec![over(0), over(0)], Fate::Lives),
        (vec![over(9), over(3 << 8)], Fate::Lives),
        (vec![], Fate::Lives),
    ] {
        assert_eq!(Fate::of(&tasks), fate, "{tasks:?}");
    }
}
