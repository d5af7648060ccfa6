//! Signals in moments in which nobody can handle them.

use crate::service::Service;
use anyhow::{Context as _, ensure};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};
use tests::process::signal_process;
use tests::procfs;
use tests::wait::{self, PATIENCE};

const FLAGS: [&str; 4] = ["--probation", "100ms", "--stop-timeout", "1s"];

/// Whether the first thread of a process has a signal blocked.
fn blocks(pid: u32, signal: Signal) -> anyhow::Result<bool> {
    let mask = procfs::status_field(pid, "SigBlk")?;
    let mask = u64::from_str_radix(mask.trim(), 16).context("a mask")?;
    Ok(mask & 1 << (signal as i32 - 1) != 0)
}

/// Guards orders that come while one program ends and the next begins. The log can't be written meanwhile, which makes that
/// moment half a second long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_in_the_moment_of_the_replacement_is_not_lost() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    let path = service.folder().join("stuck");
    mkfifo(&path, Mode::S_IRWXU)?;
    let mut reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
    // Each writer has a mode of its own: the supervisor's blocks.
    let mut filler = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
    service.start_with(File::options().write(true).open(&path)?)?;
    service.wait_for("an active generation", |status| status.active().is_some()).await?;
    // Less than a page at a time would find room where a page does not.
    for size in [4_096, 1] {
        let full = std::iter::repeat_with(|| filler.write_all(&vec![b'\n'; size])).find_map(Result::err);
        ensure!(full.as_ref().is_some_and(|error| error.kind() == ErrorKind::WouldBlock), "{full:?}");
    }
    let pid = service.pid()?;
    service.replace_program()?;
    signal_process(pid, Signal::SIGUSR2)?;
    wait::eventually(PATIENCE, "the moment of the replacement", async || {
        if !blocks(pid, Signal::SIGTERM)? {
            return Ok(None);
        }
        // Also a fork may block signals, for less than this.
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(blocks(pid, Signal::SIGTERM)?.then_some(()))
    })
    .await?;
    signal_process(pid, Signal::SIGTERM)?;

    // From now on the log can be written again.
    drop(filler);
    let reader = std::thread::spawn(move || {
        let (mut text, mut chunk) = (Vec::new(), [0; 4_096]);
        loop {
            match reader.read(&mut chunk) {
                Ok(0) => return text,
                Ok(count) => text.extend_from_slice(&chunk[..count]),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    assert_eq!(service.end().await?, Some(0));
    let text = reader.join().map_err(|_| anyhow::anyhow!("the reader failed"))?;
    let text = String::from_utf8_lossy(&text);
    ensure!(text.contains("going on with 1 generations"), "it was not replaced before it stopped: {text}");
    Ok(())
}

/// Guards the same against threads that take a signal for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_thread_but_the_first_takes_signals() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    service.serve().await?;
    let pid = service.pid()?;
    let mut others = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task: u32 = task?.file_name().to_string_lossy().parse().context("a number")?;
        // A thread has a number like a process, with its own mask (proc(5)).
        assert_eq!(blocks(task, Signal::SIGTERM)?, task != pid, "thread {task} of {pid}");
        others += u32::from(task != pid);
    }
    ensure!(others > 0, "not even the log's thread");
    Ok(())
}

/// Guards a stop that comes during a start: by default the signal would end it, and its status would tell of a crash. Closing
/// what it was not told about is the first thing that it does, and so many descriptors take it some time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_during_a_start_is_a_stop() -> anyhow::Result<()> {
    const MANY: usize = 5_000;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let null = File::open("/dev/null")?;
    let mut service = Service::new(&FLAGS, false)?;
    // Without close-on-exec, and above the numbers that a shell uses itself.
    let inherited = (0..MANY).map(|_| fcntl(&null, FcntlArg::F_DUPFD(100))).collect::<Result<Vec<_>, _>>()?;
    let first = inherited.iter().min().context("one at least")?;
    service.start()?;
    let pid = service.pid()?;
    let path = format!("/proc/{pid}/fd/{first}");
    let end = Instant::now() + PATIENCE;
    // Without a pause: it is a matter of milliseconds.
    while fs::symlink_metadata(&path).is_ok() {
        ensure!(Instant::now() < end, "it does not close {first}");
    }
    signal_process(pid, Signal::SIGTERM)?;
    assert_eq!(service.end().await?, Some(0), "{}", service.tail());
    Ok(())
}
