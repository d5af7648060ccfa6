//! Started by a shim that is process 1 of a container, or that a service manager started in our place.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use tests::process::signal_process;
use tests::scenario::UnderLoad;
use tests::supervisor::Setup;
use tests::wait::PATIENCE;
use tests::{Replaceable, procfs};

/// What a service manager says to the process that it started, the shim, with a descriptor that would be the state of an
/// earlier supervisor. The shim hands all of it down, but LISTEN_PID is its own number.
const LISTEN: &str = "export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=state; exec 3</dev/null";

async fn serves_below(shim: &str, forwards: bool) -> anyhow::Result<()> {
    let setup = Setup::by_shell(&format!("{LISTEN}; {shim}"), "program")?.flags(["--probation", "0s"]);
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let exec = program.path().to_owned();
    let load = UnderLoad::of(setup.exec(exec), program).await?;
    let supervisor = load.supervisor.process.pid();
    let named = |pid: &u32| procfs::status_field(*pid, "Name").is_ok_and(|name| name == "moq-supervise");
    let below = procfs::descendants(supervisor).into_iter().find(named).context("the supervisor is below the shim")?;
    ensure!(load.supervisor.process.count("can't be used") == 0, "it took what was for its shim");
    assert_eq!(load.supervisor.upgrade().await?, 2);
    assert_eq!(load.supervisor.upgrade().await?, 3);
    let mut supervisor = load.unharmed().await?;
    let addressed = if forwards { supervisor.process.pid() } else { below };
    signal_process(addressed, Signal::SIGTERM)?;
    let status = supervisor.process.wait(PATIENCE).await?;
    assert_eq!(status.code(), Some(0), "{}", supervisor.process.tail());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_tini_it_serves_and_upgrades_under_load() -> anyhow::Result<()> {
    serves_below("exec tini -- \"$@\"", true).await
}

/// With `-s` it is the one that gets the orphans, unless we are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_tini_as_a_subreaper_it_serves_and_upgrades_under_load() -> anyhow::Result<()> {
    serves_below("exec tini -s -- \"$@\"", true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_a_shell_it_serves_and_upgrades_under_load() -> anyhow::Result<()> {
    serves_below("\"$@\"; exit $?", false).await
}
