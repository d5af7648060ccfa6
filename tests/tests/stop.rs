//! A stop in every state of the service, once and twice, and what becomes of those who wait for something else.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use protocol::exit;
use std::time::{Duration, Instant};
use tests::client::echo::Session;
use tests::supervisor::{Setup, Status, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, procfs};

/// Listens where the echo server does.
const ADOPT: &str = "quic [::]:0 1\nname echo\nhello\nadopt\n";

/// A state in which a stop can find the service.
struct State {
    name: &'static str,
    /// What the first generation does, and the one after it.
    scripts: [&'static str; 2],
    flags: &'static [&'static str],
    /// How it comes to that state after the first generation is active.
    then: Then,
    is_reached: fn(&Status) -> bool,
}

/// What happens to an active first generation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    Upgrade,
    UpgradeAndRollback,
    Crash,
    /// Its successor crashes, while it drains itself.
    UpgradeAndCrash,
}

const SERVES: &str = "quic [::]:0 1\nname echo\nhello\nadopt\nready\nserve";
/// Goes neither by `drain` nor by SIGTERM.
const STAYS: &str = "stubborn\nquic [::]:0 1\nname echo\nhello\nadopt\nready\nsessions 1\nhold";

const STATES: [State; 10] = [
    State {
        name: "first",
        scripts: ["hang", SERVES],
        flags: &[],
        then: Then::Nothing,
        is_reached: |status| status.state(1) == "starting",
    },
    State {
        name: "serving",
        scripts: [STAYS, SERVES],
        flags: &[],
        then: Then::Nothing,
        is_reached: |status| status.state(1) == "active",
    },
    State {
        name: "checking",
        scripts: [STAYS, SERVES],
        flags: &["--check-command", "touch checking; sleep 60"],
        then: Then::Upgrade,
        is_reached: |_status| true,
    },
    State {
        name: "starting",
        scripts: [STAYS, "stubborn\nhang"],
        flags: &[],
        then: Then::Upgrade,
        is_reached: |status| status.state(2) == "starting",
    },
    State {
        name: "probation",
        scripts: [STAYS, STAYS],
        flags: &["--probation", "1m"],
        then: Then::Upgrade,
        is_reached: |status| status.state(1) == "standby",
    },
    State {
        name: "draining",
        scripts: [STAYS, STAYS],
        flags: &["--probation", "0s", "--drain-timeout", "5m"],
        then: Then::Upgrade,
        is_reached: |status| status.state(1) == "draining",
    },
    State {
        name: "rollback",
        scripts: [STAYS, STAYS],
        flags: &["--probation", "1m"],
        then: Then::UpgradeAndRollback,
        is_reached: |status| status.state(2) == "ending",
    },
    State {
        name: "crashed",
        scripts: [SERVES, "stubborn\nhang"],
        flags: &[],
        then: Then::Crash,
        is_reached: |status| status.state(2) == "starting",
    },
    State {
        name: "failed",
        scripts: [SERVES, "exit 1"],
        flags: &[],
        then: Then::Crash,
        is_reached: |status| status.generations.is_empty(),
    },
    State {
        name: "standing in",
        scripts: [STAYS, "exit 1"],
        flags: &["--probation", "0s", "--drain-timeout", "5m"],
        then: Then::UpgradeAndCrash,
        is_reached: |status| status.state(1) == "active",
    },
];

impl State {
    async fn reach(&self, more: &[&str]) -> anyhow::Result<Supervisor> {
        let setup = Setup::new("program")?.flags(self.flags).flags(more);
        let program = Replaceable::new(setup.folder());
        program.plays(self.scripts[0])?;
        let exec = program.path().to_owned();
        let supervisor = setup.exec(exec).start()?;
        if self.then != Then::Nothing {
            let mut status = supervisor.wait_for("an active generation", |status| status.active().is_some()).await?;
            if self.then == Then::UpgradeAndCrash {
                supervisor.upgrade().await?;
                status = supervisor.status().await?;
            }
            program.plays(self.scripts[1])?;
            match self.then {
                Then::Crash | Then::UpgradeAndCrash => {
                    let pid = status.active().and_then(|active| active.pid).context("its pid")?;
                    tests::process::signal_process(pid, Signal::SIGKILL)?;
                }
                Then::Nothing | Then::Upgrade | Then::UpgradeAndRollback => {
                    supervisor.process.signal(Signal::SIGUSR2)?;
                }
            }
        }
        if self.then == Then::UpgradeAndRollback {
            supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
            supervisor.command("rollback", &[]).await?;
        }
        if self.name == "checking" {
            let mark = supervisor.folder().join("checking");
            wait::until(PATIENCE, "the check command", || Ok(mark.exists())).await?;
        }
        supervisor.wait_for(self.name, self.is_reached).await?;
        Ok(supervisor)
    }
}

/// Waits for the end: status 0, and nobody left behind.
async fn ends_well(mut supervisor: Supervisor, name: &str) -> anyhow::Result<()> {
    let all = procfs::descendants(supervisor.process.pid());
    let status = supervisor.process.wait(PATIENCE).await.with_context(|| name.to_owned())?;
    ensure!(status.code() == Some(i32::from(exit::OK)), "{name}: {status}: {}", supervisor.process.tail());
    ensure!(!all.iter().any(|pid| procfs::is_alive(*pid)), "{name}: somebody outlived the supervisor");
    ensure!(!supervisor.control().exists(), "{name}: the control socket is left behind");
    Ok(())
}

/// Nothing keeps a service from stopping: not even children that never go by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_the_service_in_every_state() -> anyhow::Result<()> {
    for state in STATES {
        let supervisor = state.reach(&["--stop-timeout", "200ms"]).await?;
        supervisor.process.signal(Signal::SIGTERM)?;
        ends_well(supervisor, state.name).await?;
    }
    Ok(())
}

/// Whoever asks twice does not want to wait, whatever is going on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_stop_ends_it_at_once_in_every_state() -> anyhow::Result<()> {
    for state in STATES {
        let supervisor = state.reach(&["--stop-timeout", "5m"]).await?;
        supervisor.process.signal(Signal::SIGTERM)?;
        // Signals of one kind that come together are one, so the second waits until the first has been seen; some
        // states have nothing to wait for and are over by then.
        let _over = supervisor.process.wait_for_line("signal: stop", PATIENCE).await;
        let asked = Instant::now();
        let _over = supervisor.process.signal(Signal::SIGINT);
        ends_well(supervisor, state.name).await?;
        ensure!(asked.elapsed() < Duration::from_secs(2), "{}: {:?}", state.name, asked.elapsed());
    }
    Ok(())
}

/// Without `--stop-timeout`, the child's own drain timeout governs a stop; with it, that one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_takes_the_childs_drain_timeout_unless_told_otherwise() -> anyhow::Result<()> {
    /// From the deadline to SIGKILL.
    const GRACE: Duration = Duration::from_secs(2);
    let script = format!("stubborn\ndrains 1500\n{ADOPT}ready\nsessions 1\nhold");
    for (flags, timeout) in
        [(&[][..], Duration::from_millis(1_500)), (&["--stop-timeout", "100ms"], Duration::from_millis(100))]
    {
        let setup = Setup::new("program")?.flags(flags);
        let program = Replaceable::new(setup.folder());
        program.plays(&script)?;
        let exec = program.path().to_owned();
        let supervisor = setup.exec(exec).serve().await?;
        let asked = Instant::now();
        supervisor.process.signal(Signal::SIGTERM)?;
        ends_well(supervisor, "serving").await?;
        let took = asked.elapsed();
        assert!((timeout + GRACE..timeout + GRACE + Duration::from_secs(1)).contains(&took), "{flags:?}: {took:?}");
    }
    Ok(())
}

/// Whoever waits for an upgrade is told that it will not come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_for_an_upgrade_learn_of_the_stop() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--stop-timeout", "5s"]);
    let program = Replaceable::new(setup.folder());
    program.plays(SERVES)?;
    let exec = program.path().to_owned();
    let supervisor = setup.exec(exec).serve().await?;
    program.plays("hang")?;
    let stop = async {
        supervisor.wait_for("an upgrade", |status| status.state(2) == "starting").await?;
        supervisor.process.signal(Signal::SIGTERM)
    };
    let (upgrade, stop) = tokio::join!(supervisor.command("upgrade", &[]), stop);
    stop?;
    let upgrade = upgrade?;
    assert_eq!(upgrade.status.code(), Some(i32::from(exit::DENIED)), "{}", upgrade.stderr);
    assert!(upgrade.stderr.contains("the service is stopping"), "{}", upgrade.stderr);
    ends_well(supervisor, "upgrade").await
}

/// Guards against signals that stay blocked after an upgrade has failed, and against one that cancels a stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_signal_works_after_a_failed_upgrade() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "0s", "--stop-timeout", "5s"]);
    let notes = setup.folder().join("notes");
    let program = Replaceable::new(setup.folder());
    let notes_reload = format!("notes {}\nserve", notes.display());
    program.plays(&format!("{ADOPT}ready\n{notes_reload}"))?;
    let exec = program.path().to_owned();
    let supervisor = setup.exec(exec).serve().await?;
    program.plays(&format!("{ADOPT}die"))?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    supervisor.process.wait_for_line("generation 2 failed", PATIENCE).await?;
    assert_eq!(procfs::status_field(supervisor.process.pid(), "SigBlk")?, "0000000000000000");

    supervisor.process.signal(Signal::SIGHUP)?;
    let reloaded = || Ok(std::fs::read_to_string(&notes).unwrap_or_default().lines().any(|kind| kind == "reload"));
    wait::until(PATIENCE, "a reload", reloaded).await?;
    // SIGCHLD: the end of a child is noticed, and it is replaced.
    program.becomes_echo()?;
    let pid = supervisor.status().await?.generation(1).and_then(|first| first.pid).context("its pid")?;
    tests::process::signal_process(pid, Signal::SIGKILL)?;
    supervisor.wait_for("a successor", |status| status.state(3) == "active").await?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    supervisor.wait_for("an upgrade", |status| status.state(4) == "active").await?;
    let session = Session::connect(supervisor.address().await?).await?;
    supervisor.wait_for("a session", |status| status.sessions(4) == 1).await?;
    supervisor.process.signal(Signal::SIGTERM)?;
    supervisor.wait_for("the drain", |status| status.state(4) == "draining").await?;
    supervisor.process.signal(Signal::SIGHUP)?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    session.echo(b"until it leaves").await?;
    drop(session);
    ends_well(supervisor, "serving").await
}

/// How often [`a_stop_right_after_a_spawn_leaves_nobody_behind`] tries; the soak tries more often.
fn rounds() -> u32 {
    std::env::var("MOQ_SUPERVISE_SOAK").map_or(25, |_soak| 500)
}

/// Guards against a signal that is lost between fork and exec, or a child that nobody knows of yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_right_after_a_spawn_leaves_nobody_behind() -> anyhow::Result<()> {
    for round in 0..rounds() {
        let setup = Setup::new("program")?.flags(["--stop-timeout", "100ms"]);
        let program = Replaceable::new(setup.folder());
        program.plays(SERVES)?;
        let exec = program.path().to_owned();
        let supervisor = setup.exec(exec).serve().await?;
        let pid = supervisor.process.pid();
        supervisor.process.signal(Signal::SIGUSR2)?;
        let pause = Duration::from_micros(u64::from(round % 26) * 200);
        let _nothing_comes = wait::within(pause, "a pause", std::future::pending::<()>()).await;
        supervisor.process.signal(Signal::SIGTERM)?;
        ends_well(supervisor, &format!("{pause:?} after the upgrade was asked for")).await?;
        ensure!(procfs::descendants(pid).is_empty());
    }
    Ok(())
}

/// Guards against a `leave` that would cost the service: nothing is stored yet for a supervisor that comes after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_is_denied_while_nothing_is_stored() -> anyhow::Result<()> {
    let setup = Setup::new("program")?;
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let exec = program.path().to_owned();
    let mut supervisor = setup.exec(exec).serve().await?;
    let pid = i32::try_from(supervisor.process.pid())?;
    let killed = std::process::Command::new("kill").args(["-s", "RTMIN+1", &pid.to_string()]).status()?;
    ensure!(killed.success());
    supervisor.process.wait_for_line("leave denied", PATIENCE).await?;
    ensure!(supervisor.process.is_running()?);
    drop(Session::connect(supervisor.address().await?).await?);
    Ok(())
}
