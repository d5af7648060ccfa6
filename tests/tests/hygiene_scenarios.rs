//! Descriptors, orphans, process IDs and terminals, as reports from the field have them; and that nothing grows.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use protocol::exit;
use std::fs;
use std::time::{Duration, Instant};
use tests::client::echo::Session;
use tests::scenario::Terminal;
use tests::supervisor::Setup;
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, procfs, program, relay};

/// Listens where the echo server does.
const ADOPT: &str = "quic [::]:0 1\nname echo\nhello\nadopt\n";

/// Guards against what a careless shim leaves open: it would live as long as the service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_supervisor_closes_what_nobody_told_it_about() -> anyhow::Result<()> {
    let line = "exec 7</etc/passwd 9</dev/zero; exec \"$@\"";
    let supervisor = Setup::by_shell(line, program::echo()?)?.child(["[::]:0"]).serve().await?;
    for lost in ["/etc/passwd", "/dev/zero"] {
        let line = supervisor.process.wait_for_line(&format!("({lost})"), PATIENCE).await?;
        assert!(line.contains("closed descriptor"), "{line}");
        let held = procfs::descriptors(supervisor.process.pid())?;
        assert!(!held.values().any(|target| target == lost), "{held:?}");
    }
    Ok(())
}

/// Guards against programs that a relay starts and that keep its ports open: every descriptor is close-on-exec, and the
/// sockets are exactly those that it was given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_has_exactly_its_sockets_and_all_of_them_are_close_on_exec() -> anyhow::Result<()> {
    /// O_CLOEXEC in the octal flags of /proc/PID/fdinfo (proc_pid_fdinfo(5)).
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let echo = Setup::new(program::echo()?)?.child(["[::]:0"]).serve().await?;
    let relay = Setup::new(program::relay()?)?.child(relay::OPEN).child(["--runtime-workers", "3"]).serve().await?;
    for (supervisor, members) in [(&echo, 1), (&relay, 3)] {
        let child = supervisor.status().await?.generation(1).and_then(|first| first.pid).context("its pid")?;
        for number in procfs::descriptors(child)?.into_keys().filter(|number| *number > 2) {
            let Ok(info) = fs::read_to_string(format!("/proc/{child}/fdinfo/{number}")) else { continue };
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).context("flags")?;
            let flags = u32::from_str_radix(flags.trim(), 8)?;
            assert!(flags & CLOSE_ON_EXEC != 0, "descriptor {number} of {child} survives exec");
        }
        let held = procfs::udp_inodes(child)?;
        assert_eq!(held.len(), members, "{held:?}");
        assert!(held.is_subset(&procfs::udp_inodes(supervisor.process.pid())?));
    }
    Ok(())
}

/// The supervisor in the process tree below `launcher`.
fn supervisor_below(launcher: u32) -> anyhow::Result<u32> {
    let below = procfs::descendants(launcher);
    let found = below
        .into_iter()
        .chain([launcher])
        .find(|pid| procfs::status_field(*pid, "Name").is_ok_and(|name| name == "moq-supervise"));
    found.context("no supervisor is running")
}

/// Runs what follows as PID 1 of a namespace.
const UNSHARE: &str = "unshare --user --map-root-user --fork --pid --mount-proc --kill-child";

/// 200 orphans that end at once, and the relay among them: all of them are reaped, and the end of the relay is not
/// lost. `line` starts the supervisor.
async fn reaps_everybody(line: &str) -> anyhow::Result<()> {
    const ORPHANS: usize = 200;
    let setup = Setup::by_shell(line, "program")?.flags(["--probation", "0s"]);
    let program = Replaceable::new(setup.folder());
    let script = setup.folder().join("script");
    fs::write(&script, format!("{ADOPT}ready\nserve"))?;
    // Each orphan has been forked twice, so that it is the supervisor's; it ends when somebody has opened the gate.
    let orphans = format!("mkfifo gate; for i in $(seq {ORPHANS}); do ( (read line <gate) & ); done");
    let fixture = program::fixture()?;
    let text = format!("#!/bin/sh\n{orphans}\nexec '{}' '{}'", fixture.display(), script.display());
    program.contains(&text, 0o755)?;
    let exec = program.path().to_owned();
    let mut supervisor = setup.exec(exec).serve().await?;
    let pid = supervisor_below(supervisor.process.pid())?;
    let all = || Ok(procfs::descendants(pid).len() == ORPHANS + 1);
    wait::until(PATIENCE, "all of them", all).await?;
    let named = |pid: &u32| procfs::status_field(*pid, "Name").is_ok_and(|name| name == "fixture");
    let relay = procfs::descendants(pid).into_iter().find(named).context("the relay runs")?;

    program.becomes_echo()?;
    drop(fs::File::options().write(true).open(supervisor.folder().join("gate"))?);
    tests::process::signal_process(relay, Signal::SIGKILL)?;
    supervisor.wait_for("a successor", |status| status.state(2) == "active").await?;
    supervisor.process.wait_for_line("generation 1 was ended by signal 9", PATIENCE).await?;
    // A zombie would be a descendant still.
    wait::until(PATIENCE, "the successor alone", || Ok(procfs::descendants(pid).len() == 1)).await?;
    tests::process::signal_process(pid, Signal::SIGTERM)?;
    let status = supervisor.process.wait(PATIENCE).await?;
    assert_eq!(status.code(), Some(i32::from(exit::OK)), "{}", supervisor.process.tail());
    Ok(())
}

/// Guards against SIGCHLDs that come as one: the supervisor is the subreaper of everything below it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subreaper_reaps_two_hundred_orphans_that_end_at_once() -> anyhow::Result<()> {
    reaps_everybody("exec \"$@\"").await
}

/// The same as PID 1 of a container: of a PID namespace of its own, which this test needs (unshare(1)).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pid_1_reaps_two_hundred_orphans_that_end_at_once() -> anyhow::Result<()> {
    reaps_everybody(&format!("exec {UNSHARE} \"$@\"")).await
}

/// Guards against signals by number: the number of a generation that has ended is another process's soon, here with
/// certainty. All that the supervisor still does about the old one (its deadline, its grace, the end of its group) is
/// over when the new owner of the number is looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_gets_the_number_of_a_generation_that_ended_is_left_alone() -> anyhow::Result<()> {
    let line = format!("exec {UNSHARE} \"$@\"");
    let flags = ["--probation", "0s", "--drain-timeout", "1s"];
    let setup = Setup::by_shell(&line, "program")?.flags(flags);
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let exec = program.path().to_owned();
    let supervisor = setup.exec(exec).serve().await?;
    let below = supervisor_below(supervisor.process.pid())?;
    let first = procfs::descendants(below).pop().context("the first generation runs")?;
    // proc_pid_status(5): the last number is the one in the innermost namespace.
    let number: u32 = procfs::status_field(first, "NSpid")?.split_whitespace().last().context("NSpid")?.parse()?;

    let asked = Instant::now();
    supervisor.upgrade().await?;
    supervisor.wait_for("the end of the first", |status| status.generations.len() == 1).await?;
    // pid_namespaces(7): the next process gets the number after this one.
    let again = format!("echo {} >/proc/sys/kernel/ns_last_pid; sleep 600 &", number - 1);
    let text =
        format!("#!/bin/sh\n{again}\n[ $! = {number} ] || exit 9\nexec '{}' '[::]:0'", program::echo()?.display());
    program.contains(&text, 0o755)?;
    assert_eq!(supervisor.upgrade().await?, 3);
    supervisor.wait_for("the end of the second", |status| status.generations.len() == 1).await?;
    // The drain timeout and the grace of both that have ended.
    wait::until(PATIENCE, "all deadlines", || Ok(asked.elapsed() > Duration::from_secs(4))).await?;
    supervisor.wait_for("an answer after all deadlines", |status| status.state(3) == "active").await?;
    let owner = |pid: &u32| {
        procfs::status_field(*pid, "NSpid").is_ok_and(|all| all.split_whitespace().last() == Some(&number.to_string()))
    };
    let found = procfs::descendants(below).into_iter().find(owner).context("the new owner of the number")?;
    assert_eq!(procfs::status_field(found, "Name")?, "sleep");
    Ok(())
}

/// How many upgrades [`descriptors_and_memory_are_flat_over_many_upgrades_and_reloads`] does; the soak does more.
fn upgrades() -> u32 {
    std::env::var("MOQ_SUPERVISE_SOAK").map_or(150, |_soak| 500)
}

/// Guards against whatever is leaked once per upgrade: old channels, sockets, keys, tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptors_and_memory_are_flat_over_many_upgrades_and_reloads() -> anyhow::Result<()> {
    const WARM_UP: u32 = 30;
    let setup = Setup::new("program")?.flags(["--probation", "0s", "--drain-timeout", "5m", "--log-level", "warn"]);
    let program = Replaceable::new(setup.folder());
    program.plays(&format!("{ADOPT}ready\nserve"))?;
    let exec = program.path().to_owned();
    let supervisor = setup.exec(exec).serve().await?;
    let pid = supervisor.process.pid();
    let settled = async || {
        supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
        let held: Vec<String> = procfs::descriptors(pid)?.into_values().collect();
        anyhow::Ok((held.len(), procfs::udp_inodes(pid)?, procfs::rss_kib(pid)?, held))
    };
    let upgrade = async || {
        let output = supervisor.command("upgrade", &[]).await?;
        ensure!(output.status.success(), "{}", output.stderr);
        supervisor.process.signal(Signal::SIGHUP)
    };
    for _ in 0..WARM_UP {
        upgrade().await?;
    }
    let before = settled().await?;
    for _ in 0..upgrades() {
        upgrade().await?;
    }
    let after = settled().await?;
    assert_eq!(before.0, after.0, "{:?}", after.3);
    assert_eq!(before.1, after.1, "other UDP sockets");
    assert!(after.2 <= before.2 + 1_024, "{} KiB before, {} KiB after", before.2, after.2);
    assert_eq!(procfs::descendants(pid).len(), 1);
    Ok(())
}

/// Guards against double delivery: a terminal's Ctrl-C goes to the foreground group alone, in which no relay is, so the
/// relay drains once, in its time; a second one forces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_ctrl_c_drains_and_a_second_one_forces() -> anyhow::Result<()> {
    let mut terminal = Terminal::serve(program::echo()?, &["--stop-timeout", "5m"], &["[::]:0"]).await?;
    let session = Session::connect(terminal.supervisor.address().await?).await?;
    terminal.supervisor.wait_for("the session", |status| status.sessions(1) == 1).await?;
    terminal.types("\u{3}")?;
    terminal.supervisor.wait_for("the drain", |status| status.state(1) == "draining").await?;
    session.echo(b"in its time").await?;
    terminal.types("\u{3}")?;
    let status = terminal.supervisor.process.wait(PATIENCE).await?;
    assert_eq!(status.code(), Some(i32::from(exit::OK)));
    Ok(())
}

/// Guards against Ctrl-Z: whoever stops the supervisor for a while stops no relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_supervisor_stops_no_relay() -> anyhow::Result<()> {
    for signal in [Signal::SIGSTOP, Signal::SIGTSTP] {
        let supervisor = Setup::new(program::echo()?)?.flags(["--probation", "0s"]).child(["[::]:0"]).serve().await?;
        let server = supervisor.address().await?;
        supervisor.process.signal(signal)?;
        Session::connect(server).await?.echo(b"served all the same").await?;
        supervisor.process.signal(Signal::SIGCONT)?;
        assert_eq!(supervisor.upgrade().await?, 2);
    }
    Ok(())
}

/// Guards against a terminal that is closed: SIGHUP means "reload" and is no end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_that_hangs_up_ends_nothing() -> anyhow::Result<()> {
    let mut terminal = Terminal::serve(program::echo()?, &["--stop-timeout", "1s"], &["[::]:0"]).await?;
    let server = terminal.supervisor.address().await?;
    terminal.hang_up().await?;
    Session::connect(server).await?.echo(b"served all the same").await?;
    assert_eq!(terminal.supervisor.upgrade().await?, 2);
    tests::process::signal_process(terminal.pid, Signal::SIGTERM)?;
    wait::until(PATIENCE, "its end", || Ok(!procfs::is_alive(terminal.pid))).await
}
