//! SIGKILL at every step of the protocol: to the new generation, to the old one, and to both.

use crate::told::kill;
use anyhow::Context as _;
use nix::sys::signal::Signal;
use std::net::SocketAddr;
use std::path::PathBuf;
use tests::Replaceable;
use tests::client::echo::Session;
use tests::client::silent::Silent;
use tests::process::signal_process;
use tests::scenario;
use tests::supervisor::{Setup, Status, Supervisor};
use tests::wait::{self, PATIENCE};

/// How far a new generation gets before it stands still, and how it goes on when it is let go: docs/protocol.md, "Life of a
/// child".
const STEPS: [(&str, &str, &str); 7] = [
    ("before hello", "", "hello\nadopt\nready\nactivated\n"),
    ("after hello", "hello\n", "adopt\nready\nactivated\n"),
    ("adopted", "hello\nadopt\n", "ready\nactivated\n"),
    ("asked for more time", "hello\nadopt\nstarting 60000\n", "ready\nactivated\n"),
    ("ready", "hello\nadopt\nready\n", "activated\n"),
    ("activated", "hello\nadopt\nready\nactivated\n", ""),
    ("has reported", "hello\nadopt\nready\nactivated\nsessions 1\n", ""),
];

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    New,
    Old,
    Both,
}

/// The old generation serves, and a new one stands still at a step.
struct Standstill {
    supervisor: Supervisor,
    _program: Replaceable,
    server: SocketAddr,
    /// Of the old one.
    session: Session,
    /// Once it is there, the new one goes on.
    gate: PathBuf,
}

async fn at(step: &str, rest: &str) -> anyhow::Result<Standstill> {
    let (supervisor, program) = scenario::serving(&["--probation", "5m", "--ready-timeout", "5m"]).await?;
    let server = supervisor.address().await?;
    let session = Session::connect(server).await?;
    session.echo(b"old").await?;
    let (mark, gate) = (supervisor.folder().join("mark"), supervisor.folder().join("gate"));
    let (reports, waits) = (format!("report {}\n", mark.display()), format!("wait {}\n", gate.display()));
    program.plays(&format!("quic [::]:0 1\nname echo\n{step}{reports}{waits}{rest}serve"))?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    wait::until(PATIENCE, "the step", || Ok(mark.exists())).await?;
    program.becomes_echo()?;
    Ok(Standstill { supervisor, _program: program, server, session, gate })
}

/// Whatever died, somebody serves soon, with a process that was not there at the crash or that outlived it.
async fn serves(supervisor: &Supervisor, server: SocketAddr) -> anyhow::Result<()> {
    let session = wait::eventually(2 * PATIENCE, "a session", async || {
        let connecting = tokio::time::timeout(std::time::Duration::from_secs(3), Session::connect(server));
        let Ok(Ok(session)) = connecting.await else { return Ok(None) };
        Ok(session.echo(b"served").await.is_ok().then_some(session))
    });
    session.await.with_context(|| supervisor.process.tail())?;
    Ok(())
}

async fn survives(dies: Dies) -> anyhow::Result<()> {
    for (name, step, rest) in STEPS {
        let check = async {
            let Standstill { supervisor, server, session, gate, .. } = &at(step, rest).await?;
            let expected = match dies {
                Dies::New => {
                    kill(supervisor, 2).await?;
                    supervisor.wait_for("its end", |status| status.state(2) == "gone").await?;
                    session.echo(b"still old").await?;
                    1
                }
                Dies::Old => {
                    kill(supervisor, 1).await?;
                    supervisor.wait_for("the end of the old one", |status| status.state(1) == "gone").await?;
                    // It becomes the successor once it goes on; what it plays serves nobody, so it makes room.
                    std::fs::write(gate, "")?;
                    supervisor.wait_for("the successor", |status| status.state(2) == "active").await?;
                    kill(supervisor, 2).await?;
                    3
                }
                Dies::Both => {
                    kill(supervisor, 1).await?;
                    kill(supervisor, 2).await?;
                    3
                }
            };
            serves(supervisor, *server).await?;
            let status = supervisor.wait_for("one that serves", |status| status.phase == "serving").await?;
            anyhow::ensure!(status.active().map(|active| active.generation) == Some(expected), "{status:?}");
            anyhow::Ok(())
        };
        check.await.with_context(|| format!("{dies:?} at the step: {name}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_one_dies_at_any_step_and_the_old_one_serves() -> anyhow::Result<()> {
    survives(Dies::New).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_one_dies_while_the_new_one_is_at_any_step() -> anyhow::Result<()> {
    survives(Dies::Old).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_die_at_any_step_and_a_third_one_serves() -> anyhow::Result<()> {
    survives(Dies::Both).await
}

/// The old one's own steps: on standby, in its drain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_one_dies_on_standby_or_in_its_drain_and_the_new_one_serves() -> anyhow::Result<()> {
    for (probation, state) in [("5m", "standby"), ("0s", "draining")] {
        let (supervisor, _program) = scenario::serving(&["--probation", probation, "--drain-timeout", "5m"]).await?;
        let server = supervisor.address().await?;
        let of_the_old = Silent::connect(server, 1).await?;
        supervisor.process.signal(Signal::SIGUSR2)?;
        supervisor.wait_for(state, |status| status.state(1) == state).await?;
        let of_the_new = Session::connect(server).await?;
        of_the_new.echo(b"new").await?;
        kill(&supervisor, 1).await?;
        of_the_old.are_told().await?;
        of_the_new.echo(b"still").await?;
        serves(&supervisor, server).await?;
        assert_eq!(supervisor.status().await?.state(2), "active");
    }
    Ok(())
}

/// And with the new one, which has no standby to go back to when the other is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_die_when_the_old_one_is_on_standby_or_in_its_drain_and_a_third_one_serves() -> anyhow::Result<()> {
    for (probation, state) in [("5m", "standby"), ("0s", "draining")] {
        for order in [[1, 2], [2, 1]] {
            let (supervisor, _program) =
                scenario::serving(&["--probation", probation, "--drain-timeout", "5m"]).await?;
            let server = supervisor.address().await?;
            let of_the_old = Silent::connect(server, 1).await?;
            supervisor.process.signal(Signal::SIGUSR2)?;
            supervisor.wait_for(state, |status| status.state(1) == state).await?;
            let of_the_new = Silent::connect(server, 1).await?;
            let status = supervisor.status().await?;
            for generation in order {
                let pid = status.generation(generation).and_then(|one| one.pid).context("it runs")?;
                signal_process(pid, Signal::SIGKILL)?;
            }
            let context = || format!("{state}, {order:?}: {}", supervisor.process.tail());
            of_the_old.are_told().await.with_context(context)?;
            of_the_new.are_told().await.with_context(context)?;
            serves(&supervisor, server).await.with_context(context)?;
            let third = |status: &Status| status.phase == "serving" && status.state(3) == "active";
            supervisor.wait_for("the third", third).await.with_context(context)?;
        }
    }
    Ok(())
}

/// The old one is told its role, and dies instead of saying that it has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_one_dies_before_it_acknowledges_standby_or_its_drain_and_the_new_one_serves() -> anyhow::Result<()> {
    for (role, probation, state) in [("standby", "5m", "standby"), ("drain", "0s", "draining")] {
        let setup = Setup::new("program")?.flags(["--probation", probation, "--drain-timeout", "5m"]);
        let program = Replaceable::new(setup.folder());
        // Nothing is read after `activate`.
        program.plays("quic [::]:0 1\nname echo\nhello\nadopt\nready\nactivated\nhang")?;
        let supervisor = setup.exec(program.path()).serve().await?;
        let server = supervisor.address().await?;
        program.becomes_echo()?;
        supervisor.process.signal(Signal::SIGUSR2)?;
        supervisor.wait_for(state, |status| status.state(1) == state).await?;
        let of_the_new = Session::connect(server).await?;
        kill(&supervisor, 1).await?;
        supervisor.wait_for("its end", |status| status.state(1) == "gone").await?;
        of_the_new.echo(b"new").await.with_context(|| format!("{role}: {}", supervisor.process.tail()))?;
        serves(&supervisor, server).await?;
        assert_eq!(supervisor.status().await?.state(2), "active", "{role}");
    }
    Ok(())
}
