//! What a child finds itself in, and what the supervisor costs.

use anyhow::Context as _;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tests::process::Launch;
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{NotifySocket, Process, Replaceable, procfs, program};

/// What a first generation that reports itself found, under a supervisor that was started by this line of `sh`, in
/// which `"$@"` stands for the supervisor and its arguments; and that supervisor.
async fn report_under(shell: &str, env: &[(&str, &str)]) -> anyhow::Result<(Value, Process)> {
    let folder = tempfile::tempdir()?;
    let report = folder.path().join("report");
    let program = Replaceable::new(folder.path());
    program.plays(&format!("report {}\nquic 127.0.0.1:0 1\nhello\nadopt\nready\nserve", report.display()))?;
    let supervisor = program::supervisor()?;
    let mut launch = Launch::new("/bin/sh").args(["-c", shell, "sh"]).args([&supervisor]);
    launch = launch.args(["--exec", &program.path().to_string_lossy()]);
    launch = launch.args(["--control", &folder.path().join("control.sock").to_string_lossy()]);
    for (name, value) in env {
        launch = launch.env(name, value);
    }
    let process = launch.start()?;
    wait::until(PATIENCE, "a report", || Ok(report.exists())).await.with_context(|| process.tail())?;
    Ok((serde_json::from_str(&std::fs::read_to_string(&report)?)?, process))
}

/// A line of /proc/PID/status in a report.
fn status<'a>(report: &'a Value, name: &str) -> Option<&'a str> {
    report["status"].as_str()?.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Guards against ports that stay open because somebody's grandchild holds them, and the like.
#[tokio::test]
async fn a_child_inherits_only_its_standard_streams_and_its_channel() -> anyhow::Result<()> {
    let (report, _supervisor) = report_under("exec 9</etc/hostname 8</dev/null; exec \"$@\"", &[]).await?;
    let descriptors = report["descriptors"].as_object().context("descriptors")?;
    let channel = report["environment"]["MOQ_SUPERVISE_FD"].as_str().context("a channel")?;
    // `sh` of the fixture's program may hold its script at 10 while it runs, but not across its exec.
    let expected: BTreeSet<&str> = ["0", "1", "2", channel].into();
    assert_eq!(descriptors.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected, "{descriptors:?}");
    assert_eq!(descriptors["0"], "/dev/null");
    assert!(descriptors[channel].as_str().is_some_and(|target| target.starts_with("socket:")), "{descriptors:?}");
    Ok(())
}

/// Guards against children that never see a SIGTERM because whoever started the service ignored or blocked it.
#[tokio::test]
async fn a_child_has_a_clean_mask_and_default_dispositions() -> anyhow::Result<()> {
    let (report, supervisor) = report_under("trap '' HUP INT TERM USR1 USR2 PIPE; exec \"$@\"", &[]).await?;
    let mask = |name| u64::from_str_radix(status(&report, name).unwrap_or("none"), 16);
    assert_eq!(mask("SigBlk")?, 0);
    // The Rust runtime of the fixture has ignored SIGPIPE by then; signal 32 is the C library's own.
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2] {
        assert_eq!(mask("SigIgn")? >> (signal as i32 - 1) & 1, 0, "{signal} is ignored");
    }
    assert_eq!(report["group"], report["pid"], "a child has its own process group");
    assert_ne!(report["pid"], supervisor.pid());
    Ok(())
}

/// Guards against a relay that speaks to the service manager, or takes its channel for a socket of a `.socket` unit.
#[tokio::test]
async fn a_child_does_not_see_what_is_meant_for_the_supervisor() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let manager = NotifySocket::in_folder(folder.path())?;
    let notify = manager.address().to_string_lossy().into_owned();
    let env = [
        ("NOTIFY_SOCKET", notify.as_str()),
        ("WATCHDOG_USEC", "30000000"),
        ("LISTEN_FDNAMES", "stored"),
        ("MOQ_LISTEN", "[::]:0"),
        ("INVOCATION_ID", "0123"),
    ];
    let (report, supervisor) = report_under("exec \"$@\"", &env).await?;
    let environment = report["environment"].as_object().context("an environment")?;
    for hidden in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDNAMES"] {
        assert!(!environment.contains_key(hidden), "{hidden}");
    }
    for shown in ["MOQ_LISTEN", "INVOCATION_ID", "PATH", "MOQ_SUPERVISE_FD"] {
        assert!(environment.contains_key(shown), "{shown}");
    }
    let ready = manager.wait_for("READY=1", PATIENCE).await?;
    assert_eq!(ready.pid, supervisor.pid());
    Ok(())
}

/// A supervised echo server with a service manager.
async fn notifying(manager: &NotifySocket) -> anyhow::Result<Supervisor> {
    let setup = Setup::new(program::echo()?)?.flags(["--probation", "0s"]).child(["[::]:0"]);
    setup.env("NOTIFY_SOCKET", manager.address()).serve().await
}

/// Guards the order in which a service manager starts what depends on us, by either kind of its address.
#[tokio::test]
async fn the_service_manager_is_told_by_the_supervisor_alone() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for manager in [NotifySocket::in_folder(folder.path())?, NotifySocket::in_abstract_namespace()?] {
        let mut supervisor = notifying(&manager).await?;
        manager.wait_for("READY=1", PATIENCE).await?;
        supervisor.upgrade().await?;
        let state = "generation 2 active";
        wait::until(PATIENCE, "a status text with the second generation", || {
            Ok(manager.received().iter().any(|said| said.text.contains("STATUS=") && said.text.contains(state)))
        })
        .await?;
        supervisor.process.signal(Signal::SIGTERM)?;
        manager.wait_for("STOPPING=1", PATIENCE).await?;
        supervisor.process.wait(PATIENCE).await?;
        let said = manager.received();
        assert!(said.iter().all(|said| said.pid == supervisor.process.pid()), "{said:?}");
        assert_eq!(said.iter().filter(|said| said.has("READY=1")).count(), 1, "{said:?}");
    }
    Ok(())
}

/// READY=1 is a promise: not before somebody serves.
#[tokio::test]
async fn ready_comes_only_when_a_generation_is_active() -> anyhow::Result<()> {
    let setup = Setup::new("program")?;
    let manager = NotifySocket::in_folder(setup.folder())?;
    let program = Replaceable::new(setup.folder());
    program.plays("quic [::]:0 1\nhello\nadopt\nexit 5")?;
    let setup = setup.env("NOTIFY_SOCKET", manager.address());
    let mut supervisor = setup.exec(program.path()).start()?;
    supervisor.process.wait(PATIENCE).await?;
    assert!(manager.received().iter().all(|said| !said.has("READY=1")), "{:?}", manager.received());
    Ok(())
}

/// Guards against a supervisor that polls.
#[tokio::test]
async fn an_idle_supervisor_wakes_up_at_most_twice_a_second() -> anyhow::Result<()> {
    const OBSERVED: Duration = Duration::from_secs(5);
    let supervisor = Setup::new(program::echo()?)?.child(["[::]:0"]).serve().await?;
    let pid = supervisor.process.pid();
    // The status request and the start have been dealt with when nothing has happened for a while.
    let mut before = procfs::wakeups(pid)?;
    let begin = Instant::now();
    let _nothing_comes = wait::within(OBSERVED, "an idle time", std::future::pending::<()>()).await;
    let after = procfs::wakeups(pid)?;
    let per_second = |wakeups: u64| wakeups as f64 / begin.elapsed().as_secs_f64();
    before = after - before;
    assert!(per_second(before) <= 2.0, "{} a second", per_second(before));
    Ok(())
}

/// Guards against whatever is leaked once per upgrade.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_upgrades_leave_no_descriptor_thread_or_process_behind() -> anyhow::Result<()> {
    let supervisor = Setup::new(program::echo()?)?.flags(["--probation", "0s"]).child(["[::]:0"]).serve().await?;
    let pid = supervisor.process.pid();
    let settled = async || {
        supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
        let threads = procfs::status_field(pid, "Threads")?;
        anyhow::Ok((procfs::descriptors(pid)?.len(), threads, procfs::descendants(pid).len()))
    };
    // The first ones bind the members that all later ones use again.
    for _ in 0..4 {
        supervisor.upgrade().await?;
        settled().await?;
    }
    let before = settled().await?;
    let mut after = before.clone();
    for _ in 0..100 {
        supervisor.upgrade().await?;
        // The old one stays for its last call; four of them would be too many.
        after = settled().await?;
    }
    let ((descriptors, threads, _), (_, still, processes)) = (before, after);
    assert_eq!(processes, 1);
    assert_eq!(threads, still);
    // One look may catch some that are just being closed.
    let none_left = || Ok(procfs::descriptors(pid)?.len() <= descriptors);
    wait::until(PATIENCE, "no more descriptors than before", none_left).await
}

/// Guards against helpers of a child that live on and hold its sockets.
#[tokio::test]
async fn a_grandchild_ends_with_its_generation() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "0s"]);
    let program = Replaceable::new(setup.folder());
    program.plays("quic [::]:0 1\nhello\nadopt\nchild\nready\nserve")?;
    let supervisor = setup.exec(program.path()).serve().await?;
    let first = procfs::descendants(supervisor.process.pid());
    assert_eq!(first.len(), 2, "a child and a grandchild");
    program.becomes_echo()?;
    supervisor.upgrade().await?;
    wait::until(PATIENCE, "the end of both", || Ok(first.iter().all(|pid| !procfs::is_alive(*pid)))).await
}
