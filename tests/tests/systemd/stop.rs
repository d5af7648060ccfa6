//! Stop: sessions drain, and nothing is left behind.

use crate::server;
use anyhow::ensure;
use std::time::{Duration, Instant};
use tests::client::echo::Session;
use tests::systemd::{self, Service, Setup};
use tests::wait::{self, PATIENCE};

/// Nothing of the service is left: no process in its cgroup, no socket on its port; systemd thinks well of it.
async fn gone(service: &Service<'_>) -> anyhow::Result<()> {
    service.wait_property("ActiveState", "inactive").await?;
    service.sandbox.empty(&service.name).await?;
    ensure!(service.property("Result").await? == "success", "{}", service.describe().await);
    ensure!(service.cookies().await.is_err(), "a socket is still there");
    Ok(())
}

/// Guards the sessions: a stop is a drain, also under systemd.
#[test]
fn a_stop_drains_to_its_deadline_and_leaves_nothing_behind() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&["--stop-timeout", "2s"]).start().await?;
        let session = Session::connect(server()).await?;
        service.must("reload").await?;
        let younger = Session::connect(server()).await?;
        let start = Instant::now();
        service.must("stop").await?;
        ensure!(start.elapsed() >= Duration::from_millis(1_900), "stopped after {:?}", start.elapsed());
        wait::until(
            PATIENCE,
            "the ends of the sessions",
            || Ok(session.ended().is_some() && younger.ended().is_some()),
        )
        .await?;
        gone(&service).await
    })
}

/// Guards drains that are longer than the unit's own limit: systemd is told that the stop goes on.
#[test]
fn a_drain_may_take_longer_than_systemd_would_wait() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let setup = Setup::shipped(sandbox)?.flags(&["--stop-timeout", "5s"]);
        let service = setup.line("TimeoutStopSec=2s").start().await?;
        let session = Session::connect(server()).await?;
        let start = Instant::now();
        service.must("stop").await?;
        ensure!(start.elapsed() >= Duration::from_millis(4_900), "stopped after {:?}", start.elapsed());
        wait::until(PATIENCE, "the end of the session", || Ok(session.ended().is_some())).await?;
        gone(&service).await
    })
}

/// Guards the machine once more: systemd has killed a supervisor that did not stop, and its relays with nobody to end them.
#[test]
fn a_stop_that_systemd_has_to_enforce_leaves_nothing_behind() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.line("TimeoutStopSec=1s").install().await?;
        service.plays("stubborn\nquic [::]:443 1\nhello\nadopt\nready\nhang")?;
        service.must("start").await?;
        service.kill("STOP").await?;
        service.must("stop").await?;
        sandbox.empty(&service.name).await?;
        ensure!(service.cookies().await.is_err(), "a socket is still there");
        Ok(())
    })
}

/// Guards the machine: `KillMode=process` must not leave a stubborn relay there.
#[test]
fn a_relay_that_ignores_its_stop_is_killed() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&["--stop-timeout", "1s"]).install().await?;
        service.plays("stubborn\nquic [::]:443 1\nhello\nadopt\nready\nsessions 1\nhang")?;
        service.must("start").await?;
        service.must("stop").await?;
        gone(&service).await
    })
}

/// Guards a clean new beginning: what was stopped leaves nothing in the fd store either.
#[test]
fn a_start_after_a_stop_is_a_first_start() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.start().await?;
        let before = service.cookies().await?;
        service.must("stop").await?;
        gone(&service).await?;
        assert_eq!(service.property("NFileDescriptorStore").await?, "0");
        service.must("start").await?;
        assert_eq!(service.active().await?, 1);
        assert!(service.cookies().await?.is_disjoint(&before), "{before:?}");
        Ok(())
    })
}

/// Guards against a unit that ends as "failed", or stays down, because a signal reached everybody at once.
#[test]
fn a_signal_to_all_processes_is_one_drain_and_a_fresh_start() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&["--stop-timeout", "1s"]).start().await?;
        let main = service.property("MainPID").await?;
        sandbox.must(&["systemctl", "kill", "--kill-whom=all", "--signal=TERM", &service.name]).await?;
        service.wait_properties("MainPID", |pid| pid != main && pid != "0").await?;
        service.wait_property("ActiveState", "active").await?;
        assert_eq!(service.property("NRestarts").await?, "1");
        assert_eq!(service.active().await?, 1);
        service.must("stop").await?;
        gone(&service).await
    })
}
