//! The supervisor ends in a way that nobody planned, or is told to leave: the relays serve on, the next one goes on.

use crate::{MOQ, server};
use anyhow::{Context as _, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;
use tests::client::echo::Session;
use tests::client::media;
use tests::client::webtransport::{self, Media};
use tests::procfs;
use tests::systemd::{self, Clients, Service, Setup};
use tests::wait::{self, PATIENCE};

/// Flags that let sessions stay with their generation for the whole of a test.
const PATIENT: [&str; 4] = ["--probation", "0s", "--drain-timeout", "10m"];

/// systemd does not start it again for the whole of a test.
const NEVER: &str = "RestartSec=1h";

/// Guards the claim that a supervisor killed by SIGKILL costs nothing.
#[test]
fn a_killed_supervisor_under_load_costs_nothing_again_and_again() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        let sockets = service.cookies().await?;
        for count in 1..=5 {
            service.kill("KILL").await?;
            service.started_anew(count, PATIENCE).await?;
            service.wait_property("ActiveState", "active").await?;
            // A crash is no upgrade.
            assert_eq!(service.active().await?, 1);
            clients.go_on().await?;
        }
        assert_eq!(service.cookies().await?, sockets);
        service.must("reload").await?;
        assert_eq!(service.active().await?, 2);
        clients.unharmed_by(&service).await
    })
}

/// Guards the same for what is shipped: the real relay with a session.
#[test]
fn a_killed_supervisor_of_the_real_relay_ends_no_session() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.install().await?;
        service.becomes_relay("")?;
        service.must("start").await?;
        let session = webtransport::Session::connect(server(), &Media::subscribe(&media::origin())).await?;
        let clients = Clients::handshakes(Service::PORT, &[MOQ]).await?;
        for count in 1..=2 {
            service.kill("KILL").await?;
            service.started_anew(count, PATIENCE).await?;
            service.wait_property("ActiveState", "active").await?;
        }
        service.must("restart").await?;
        clients.unharmed().await?;
        ensure!(session.is_open(), "the session has ended");
        Ok(())
    })
}

/// Guards updates of systemd itself: it hands what it has stored to its own successor.
#[test]
fn a_systemd_that_executes_itself_keeps_what_it_has_stored() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        sandbox.must(&["systemctl", "daemon-reexec"]).await?;
        service.kill("KILL").await?;
        service.started_anew(1, PATIENCE).await?;
        service.wait_property("ActiveState", "active").await?;
        clients.unharmed_by(&service).await
    })
}

/// Guards an impatient operator: a restart while systemd is about to start it anyway.
#[test]
fn a_restart_between_a_crash_and_the_next_start_costs_nothing() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).line(NEVER).start().await?;
        let clients = Clients::of(&service).await?;
        service.kill("KILL").await?;
        service.wait_property("SubState", "auto-restart").await?;
        service.must("restart").await?;
        ensure!(service.status().await?.active().is_some(), "nobody is active");
        clients.unharmed_by(&service).await
    })
}

/// Guards the time in between: relays need no supervisor to serve.
#[test]
fn relays_serve_on_while_there_is_no_supervisor() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).line("RestartSec=5s").start().await?;
        let clients = Clients::of(&service).await?;
        service.kill("KILL").await?;
        service.wait_property("SubState", "auto-restart").await?;
        clients.go_on().await?;
        clients.go_on().await?;
        assert_eq!(service.property("SubState").await?, "auto-restart");
        service.started_anew(1, PATIENCE).await?;
        service.wait_property("ActiveState", "active").await?;
        assert_eq!(service.active().await?, 1);
        clients.unharmed_by(&service).await
    })
}

/// Guards a drain that was under way: it goes on with the time that it had left.
#[test]
fn a_killed_supervisor_finishes_the_drain_that_was_under_way() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let setup = Setup::shipped(sandbox)?.flags(&["--probation", "0s", "--drain-timeout", "4s"]);
        let service = setup.start().await?;
        let session = Session::connect(server()).await?;
        service.must("reload").await?;
        service.kill("KILL").await?;
        service.started_anew(1, PATIENCE).await?;
        let status = service.wait_for("the drain", |status| status.state(1) == "draining").await?;
        let left = status.generation(1).and_then(|first| first.deadline_ms);
        ensure!(left.is_some_and(|left| left < 4_000), "a drain with its time again: {status:?}");
        service.wait_for("the end of the drain", |status| status.state(1) == "gone").await?;
        ensure!(session.ended().is_some(), "the session outlived the deadline");
        assert_eq!(service.active().await?, 2);
        Ok(())
    })
}

/// Guards an upgrade that was under way: it is begun again, and ends.
#[test]
fn a_killed_supervisor_finishes_the_upgrade_that_was_under_way() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        service.becomes_echo_later()?;
        sandbox.must(&["systemctl", "reload", "--no-block", &service.name]).await?;
        service.wait_for("a relay that is starting", |status| status.state(2) == "starting").await?;
        service.kill("KILL").await?;
        service.may_start()?;
        service.wait_for("a later generation", |status| status.active().is_some_and(|one| one.generation > 1)).await?;
        clients.unharmed_by(&service).await
    })
}

/// Guards relays against being orphaned by a signal sent by hand.
#[test]
fn a_supervisor_that_is_told_to_leave_is_followed_by_another_under_load() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        service.kill("RTMIN+1").await?;
        service.started_anew(1, PATIENCE).await?;
        service.wait_property("ActiveState", "active").await?;
        clients.unharmed_by(&service).await
    })
}

/// Guards the machine: a stop must end the relays also when there is no supervisor to tell them.
#[test]
fn a_stop_while_the_supervisor_is_dead_leaves_nothing_behind() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.line(NEVER).start().await?;
        stop_without_supervisor(&service).await
    })
}

/// Guards the same against a relay that does not end when its channel is closed, and ignores SIGTERM.
#[test]
fn a_stop_while_the_supervisor_is_dead_ends_a_relay_that_ignores_its_closed_channel() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.line(NEVER).install().await?;
        service.plays("stubborn\nquic [::]:443 1\ndrains 1000\nhello\nadopt\nready\nhang")?;
        service.must("start").await?;
        stop_without_supervisor(&service).await
    })
}

async fn stop_without_supervisor(service: &Service<'_>) -> anyhow::Result<()> {
    service.kill("KILL").await?;
    service.wait_property("SubState", "auto-restart").await?;
    ensure!(!service.sandbox.processes(&service.name)?.is_empty(), "the relay is gone before the stop");
    service.must("stop").await?;
    service.sandbox.empty(&service.name).await?;
    ensure!(service.cookies().await.is_err(), "a socket is still there");
    Ok(())
}

/// Guards a service that was started right after such a stop: what ends the old relay must leave the new service alone. The
/// old relay ignores everything but SIGKILL, so that this takes all the time it can take.
#[test]
fn a_service_that_is_started_right_after_such_a_stop_is_left_alone() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.line(NEVER).install().await?;
        // Not the address of the new one, which could not start otherwise.
        service.plays("stubborn\nquic [::]:444 1\ndrains 1000\nhello\nadopt\nready\nhang")?;
        service.must("start").await?;
        service.kill("KILL").await?;
        service.wait_property("SubState", "auto-restart").await?;
        let old = sandbox.processes(&service.name)?;
        ensure!(old.len() == 2, "a relay and the guard: {old:?}");
        service.becomes_echo()?;
        service.must("stop").await?;
        service.must("start").await?;
        let clients = Clients::of(&service).await?;
        let (supervisor, relays) = (service.supervisor().await?, service.processes("echo")?);
        wait::until(PATIENCE, "the ends of the old relay and of its guard", || {
            let now = sandbox.processes(&service.name)?;
            Ok(!old.iter().any(|pid| now.contains(pid)))
        })
        .await?;
        clients.go_on().await?;
        assert_eq!((service.supervisor().await?, service.processes("echo")?), (supervisor, relays));
        assert_eq!(service.property("NRestarts").await?, "0");
        clients.unharmed_by(&service).await
    })
}

/// Guards the supervisors after one that could use nothing of what it found: what it stored itself must be all that is there
/// under its names.
#[test]
fn after_a_state_that_can_t_be_used_the_next_one_can() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let supervisor = service.supervisor().await?;
        // It can't write it again before it is killed.
        service.kill("STOP").await?;
        let is_state = |target: &String| target.contains("moq-supervise-state");
        let all = procfs::descriptors(supervisor)?;
        let (number, _) = all.iter().find(|(_, target)| is_state(target)).context("a state")?;
        let file = File::options().read(true).write(true).open(format!("/proc/{supervisor}/fd/{number}"))?;
        for slot in [0, file.metadata()?.len() / 2] {
            file.write_all_at(b"garbage", slot)?;
        }
        drop(file);
        service.kill("KILL").await?;
        service.wait_for_message("what an earlier supervisor left can't be used").await?;
        // The old relay has the address until it has ended: until then a start fails.
        service.wait_for("a cold start", |status| status.active().is_some()).await?;
        service.wait_property("ActiveState", "active").await?;

        let clients = Clients::of(&service).await?;
        let sockets = service.cookies().await?;
        let before: u32 = service.property("NRestarts").await?.parse()?;
        for count in 1..=2 {
            service.kill("KILL").await?;
            service.started_anew(before + count, PATIENCE).await?;
            service.wait_property("ActiveState", "active").await?;
            clients.go_on().await?;
        }
        assert_eq!(service.cookies().await?, sockets);
        clients.unharmed_by(&service).await
    })
}

/// Guards the operator's view: how a relay ended is known although it was another supervisor's child.
#[test]
fn a_relay_that_a_later_supervisor_took_over_is_replaced_when_it_crashes() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        service.kill("KILL").await?;
        service.started_anew(1, PATIENCE).await?;
        service.wait_for("the relay", |status| status.state(1) == "active").await?;
        let relays = service.processes("echo")?;
        ensure!(relays.len() == 1, "{relays:?}");
        tests::process::signal_process(relays[0], nix::sys::signal::Signal::SIGKILL)?;
        service.wait_for("its successor", |status| status.state(2) == "active").await?;
        // PIDFD_GET_INFO says how it ended (Linux 6.15).
        service.wait_for_message("generation 1 was ended by signal 9").await?;
        let begin = std::time::Instant::now();
        Session::connect(server()).await?.echo(b"served").await?;
        ensure!(begin.elapsed() < Duration::from_secs(3), "served after {:?}", begin.elapsed());
        Ok(())
    })
}
