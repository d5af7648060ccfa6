//! Nothing that a child, a client, a terminal or the service manager does not do keeps the supervisor from its work.

use anyhow::{Context as _, ensure};
use nix::fcntl::OFlag;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};
use tests::scenario::{self, UnderLoad};
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, procfs};

/// Listens where the echo server does.
const ADOPT: &str = "quic [::]:0 1\nname echo\nhello\nadopt\n";
/// In which the supervisor answers, a process for the question included, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(2);

/// `status` answers soon, again and again.
async fn answers(supervisor: &Supervisor) -> anyhow::Result<()> {
    for _ in 0..5 {
        let asked = Instant::now();
        scenario::status(supervisor).await?;
        ensure!(asked.elapsed() < SOON, "an answer took {:?}", asked.elapsed());
    }
    Ok(())
}

/// Guards against a supervisor that waits for a child: one that says nothing, one that reads nothing while answers to it
/// pile up, and one that talks without a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_that_are_silent_deaf_or_talk_without_a_pause() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--ready-timeout", "3s", "--probation", "100ms", "--drain-timeout", "5m"]).await?;
    let babble = "say {\"type\":\"gossip\"}\n".repeat(150);
    for script in ["hang".to_owned(), format!("{ADOPT}{babble}hang"), format!("{ADOPT}flood")] {
        under.program.plays(&script)?;
        let upgrade = under.supervisor.command("upgrade", &[]);
        let meanwhile = async {
            under.supervisor.wait_for("it", |status| status.generations.len() == 2).await?;
            answers(&under.supervisor).await?;
            under.goes_on().await
        };
        let (upgrade, meanwhile) = tokio::join!(upgrade, meanwhile);
        meanwhile.with_context(|| script.chars().take(60).collect::<String>())?;
        ensure!(!upgrade?.status.success(), "it was never ready");
        under.supervisor.wait_for("its end", |status| status.generations.len() == 1).await?;
    }
    under.program.becomes_echo()?;
    under.supervisor.upgrade().await?;
    under.unharmed().await?;
    Ok(())
}

/// Guards against a hand-over that does not fit: 4 000 sockets in 16 messages, of which a child reads none. It is given
/// up at its deadline, and nothing of it is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_of_four_thousand_sockets_that_nobody_reads() -> anyhow::Result<()> {
    let (supervisor, program) = scenario::serving(&["--ready-timeout", "3s", "--probation", "0s"]).await?;
    let before = procfs::descriptors(supervisor.process.pid())?;
    program.plays(&format!("{}hello\nhang", "quic 127.0.0.1:0 250\n".repeat(16)))?;
    let upgrade = supervisor.command("upgrade", &[]);
    let meanwhile = async {
        let full = || Ok(procfs::descriptors(supervisor.process.pid())?.len() > before.len() + 4_000);
        wait::until(PATIENCE, "4 000 sockets", full).await?;
        answers(&supervisor).await
    };
    let (upgrade, meanwhile) = tokio::join!(upgrade, meanwhile);
    meanwhile?;
    assert_eq!(upgrade?.status.code(), Some(i32::from(protocol::exit::UPGRADE_FAILED)));
    supervisor.wait_for("its end", |status| status.generations.len() == 1).await?;
    let none_left = || Ok(procfs::descriptors(supervisor.process.pid())?.len() <= before.len() + 1);
    wait::until(PATIENCE, "nothing of it left", none_left).await?;
    program.becomes_echo()?;
    supervisor.upgrade().await?;
    Ok(())
}

/// Guards against clients of the control socket that never finish what they say, or never read what they are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_control_clients() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "100ms", "--drain-timeout", "5m"]).await?;
    let mut clients = Vec::new();
    for number in 0..100 {
        let mut client = UnixStream::connect(under.supervisor.control()).context("another client")?;
        client.set_nonblocking(true)?;
        // Those that were displaced may be closed already.
        let _displaced = match number % 3 {
            0 => Ok(()),
            1 => client.write_all(b"{\"request\":"),
            _ => client.write_all(b"{\"request\":\"status\"}\n".repeat(100).as_slice()),
        };
        clients.push(client);
    }
    answers(&under.supervisor).await?;
    under.supervisor.upgrade().await?;
    under.unharmed().await?;
    drop(clients);
    Ok(())
}

/// Guards against a terminal or journal that does not read: lines are lost, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standard_error_that_nobody_reads() -> anyhow::Result<()> {
    // A pipe that is full from the start, since its one reader never reads.
    let line = "mkfifo stuck && exec \"$@\" 2<>stuck";
    let setup = Setup::by_shell(line, "program")?;
    let setup = setup.flags(["--probation", "100ms", "--drain-timeout", "5m", "--log-level", "trace"]);
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let pipe = setup.folder().join("stuck");
    let exec = program.path().to_owned();
    let mut under = UnderLoad::of(setup.exec(exec), program).await?;
    fill(&pipe)?;
    answers(&under.supervisor).await?;
    under.supervisor.upgrade().await?;
    answers(&under.supervisor).await?;
    under.goes_on().await?;
    under.supervisor.process.signal(nix::sys::signal::Signal::SIGTERM)?;
    under.supervisor.process.signal(nix::sys::signal::Signal::SIGHUP)?;
    let stopping = |status: &tests::supervisor::Status| status.state(2) == "draining";
    under.supervisor.wait_for("the stop", stopping).await?;
    under.supervisor.process.signal(nix::sys::signal::Signal::SIGTERM)?;
    assert!(under.supervisor.process.wait(PATIENCE).await?.success());
    Ok(())
}

/// Writes into a pipe until it is full.
fn fill(pipe: &std::path::Path) -> anyhow::Result<()> {
    let mut pipe = std::fs::File::options().read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(pipe)?;
    while pipe.write(b".\n").is_ok() {}
    Ok(())
}

/// Guards against a service manager that does not read its notification socket: it hears everything once it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_manager_that_does_not_read() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "0s", "--drain-timeout", "5m"]);
    let path = setup.folder().join("notify");
    let manager = UnixDatagram::bind(&path)?;
    let filler = UnixDatagram::unbound()?;
    filler.set_nonblocking(true)?;
    while filler.send_to(b"STATUS=full", &path).is_ok() {}
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let exec = program.path().to_owned();
    let supervisor = setup.env("NOTIFY_SOCKET", &path).exec(exec).serve().await?;
    for _ in 0..5 {
        supervisor.upgrade().await?;
        supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    }
    answers(&supervisor).await?;
    manager.set_nonblocking(true)?;
    let (mut ready, mut text) = (false, vec![0; 4_096]);
    wait::until(PATIENCE, "READY=1, and then the last state", || {
        while let Ok(length) = manager.recv(&mut text) {
            let said = String::from_utf8_lossy(&text[..length]);
            ready |= said.lines().any(|line| line == "READY=1");
            if ready && said.contains("generation 6 active") {
                return Ok(true);
            }
        }
        Ok(false)
    })
    .await
}

/// Guards against a check or probe that hangs: the loop goes on beside it, and it is gone with the supervisor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_command_that_hangs() -> anyhow::Result<()> {
    let setup = Setup::new("program")?;
    let mark = setup.folder().join("checking");
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let exec = program.path().to_owned();
    let mut supervisor = setup.flags(["--check-command", "touch checking; sleep 60"]).exec(exec).serve().await?;
    supervisor.process.signal(nix::sys::signal::Signal::SIGUSR2)?;
    wait::until(PATIENCE, "the check command", || Ok(mark.exists())).await?;
    answers(&supervisor).await?;
    let all = procfs::descendants(supervisor.process.pid());
    supervisor.process.signal(nix::sys::signal::Signal::SIGTERM)?;
    assert!(supervisor.process.wait(PATIENCE).await?.success());
    assert!(!all.iter().any(|pid| procfs::is_alive(*pid)), "the check outlived the supervisor");
    Ok(())
}
