//! Every line of the unit that must stay, with and without it: the same fault costs nothing, and is an outage.

use crate::{migration, server};
use anyhow::{Context as _, ensure};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tests::client::echo::Session;
use tests::systemd::{self, Clients, Sandbox, Service, Setup, Units};
use tests::wait::{self, PATIENCE};

/// The unit.
const UNIT: &str = "moq-supervise.service";

/// Flags that let sessions stay with their generation for the whole of a test, and a stop be short.
const PATIENT: [&str; 6] = ["--probation", "0s", "--drain-timeout", "10m", "--stop-timeout", "1s"];

/// Shows that a fault is harmless to `file` as shipped, and that without its line that begins with `line` it is the
/// outage that `outage` names.
fn is_needed(
    file: &str,
    line: &str,
    outage: &str,
    fault: impl AsyncFn(&Sandbox, Units) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let shipped = Units::shipped(file)?;
    let lacking = shipped.clone().without(line)?;
    systemd::test(async |sandbox| fault(sandbox, shipped).await.context("with the line"))?;
    systemd::test(async |sandbox| {
        let suffered = fault(sandbox, lacking).await;
        let error = suffered.err().with_context(|| format!("no outage without {line}"))?;
        ensure!(format!("{error:#}").contains(outage), "without {line} not {outage:?} but: {error:#}");
        Ok(())
    })
}

/// The service with [`PATIENT`] flags, and its clients.
async fn used(sandbox: &Sandbox, unit: Units) -> anyhow::Result<(Service<'_>, Clients)> {
    let service = Setup::of(sandbox, unit)?.flags(&PATIENT).line("TimeoutStopSec=2s").start().await?;
    let clients = Clients::start(Service::PORT).await?;
    Ok((service, clients))
}

/// The supervisor is killed, and the next one must find everything.
async fn crash(sandbox: &Sandbox, unit: Units) -> anyhow::Result<()> {
    let (service, clients) = used(sandbox, unit).await?;
    service.kill("KILL").await?;
    service.started_anew(1, PATIENCE).await?;
    service.wait_property("ActiveState", "active").await?;
    clients.unharmed().await
}

#[test]
fn kill_mode_process_lets_relays_outlive_a_crash() -> anyhow::Result<()> {
    is_needed(UNIT, "KillMode=process", "sessions lost", crash)
}

#[test]
fn the_fd_store_keeps_the_sockets_over_a_crash() -> anyhow::Result<()> {
    is_needed(UNIT, "FileDescriptorStoreMax=", "sessions lost", crash)
}

#[test]
fn restart_always_brings_a_supervisor_back_that_was_told_to_leave() -> anyhow::Result<()> {
    is_needed(UNIT, "Restart=always", "start number 1 by systemd itself", async |sandbox, unit| {
        let (service, clients) = used(sandbox, unit).await?;
        service.kill("RTMIN+1").await?;
        service.started_anew(1, Duration::from_secs(5)).await?;
        clients.unharmed().await
    })
}

#[test]
fn the_restart_signal_makes_a_restart_harmless() -> anyhow::Result<()> {
    is_needed(UNIT, "RestartKillSignal=", "sessions lost", async |sandbox, unit| {
        let (service, clients) = used(sandbox, unit).await?;
        service.must("restart").await?;
        clients.unharmed().await
    })
}

#[test]
fn no_start_limit_means_no_number_of_crashes_that_is_too_many() -> anyhow::Result<()> {
    is_needed(UNIT, "StartLimitIntervalSec=", "the unit is failed", async |sandbox, unit| {
        let (service, clients) = used(sandbox, unit).await?;
        for count in 1..=7 {
            service.kill("KILL").await?;
            service.started_anew(count, PATIENCE).await?;
            let state = service.wait_properties("ActiveState", |state| ["active", "failed"].contains(&state)).await?;
            ensure!(state == "active", "the unit is {state}");
        }
        clients.unharmed().await
    })
}

#[test]
fn the_runtime_directory_keeps_unix_listeners_over_a_restart() -> anyhow::Result<()> {
    const LISTENER: &str = "/run/moq-supervise/relay.sock";
    is_needed(UNIT, "RuntimeDirectoryPreserve=", "connecting to the unix listener", async |sandbox, unit| {
        let service = Setup::of(sandbox, unit)?.flags(&PATIENT).install().await?;
        service.plays(&format!("quic [::]:443 1\nunix {LISTENER}\nhello\nadopt\nready\nserve"))?;
        service.must("start").await?;
        let listener = sandbox.path(LISTENER);
        UnixStream::connect(&listener).context("before the restart")?;
        service.must("restart").await?;
        UnixStream::connect(&listener).context("connecting to the unix listener")?;
        Ok(())
    })
}

#[test]
fn sched_setaffinity_is_allowed_back_for_the_pinned_relay() -> anyhow::Result<()> {
    is_needed(UNIT, "SystemCallFilter=sched_setaffinity", "start", async |sandbox, unit| {
        let service = Setup::of(sandbox, unit)?.install().await?;
        service.becomes_relay("[runtime]\npin = true\n")?;
        service.must("start").await
    })
}

#[test]
fn the_watchdog_finds_a_supervisor_that_hangs() -> anyhow::Result<()> {
    is_needed(UNIT, "WatchdogSec=", "start number 1 by systemd itself", async |sandbox, unit| {
        let (service, clients) = used(sandbox, unit.with("WatchdogSec=10s", "WatchdogSec=2s")).await?;
        service.kill("STOP").await?;
        service.started_anew(1, Duration::from_secs(10)).await?;
        clients.unharmed().await
    })
}

/// A relay is killed for want of memory. Where the sandbox has no memory controller, systemd can't hear of it, so
/// only what it would do is looked at.
#[test]
fn a_relay_that_runs_out_of_memory_does_not_end_the_service() -> anyhow::Result<()> {
    is_needed(UNIT, "OOMPolicy=", "OOMPolicy", async |sandbox, unit| {
        let service = Setup::of(sandbox, unit)?.flags(&PATIENT).line("MemoryMax=256M").start().await?;
        if sandbox.has_memory_controller()? {
            let main = service.property("MainPID").await?;
            service.becomes("exec python3 -c 'all = [bytearray(1 << 20) for _ in range(1 << 12)]'")?;
            let reload = service.systemctl("reload").await?;
            ensure!(!reload.status.success(), "{reload:?}");
            ensure!(service.property("MainPID").await? == main, "without OOMPolicy the service was stopped");
            Session::connect(server()).await?.echo(b"served").await.map(drop)
        } else {
            let policy = service.property("OOMPolicy").await?;
            ensure!(policy == "continue", "OOMPolicy is {policy:?}");
            Ok(())
        }
    })
}

/// The line is systemd's own default: it is there for packaged units that wait longer, so it is the drop-in that fails
/// without it.
#[test]
fn a_supervisor_that_crashed_is_back_at_once() -> anyhow::Result<()> {
    let drop_in = "moq-relay.service.d/supervise.conf";
    is_needed(drop_in, "RestartSec=", "the next supervisor", async |sandbox, drop_in| {
        let service = migration::with(sandbox, &drop_in)?.start().await?;
        service.kill("KILL").await?;
        let next = async || Ok(service.status().await.ok());
        wait::eventually(Duration::from_secs(3), "the next supervisor", next).await.map(drop)
    })
}
