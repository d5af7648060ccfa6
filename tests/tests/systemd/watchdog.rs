//! The watchdog: a supervisor or a relay that hangs is replaced.

use crate::server;
use anyhow::ensure;
use nix::sys::signal::Signal;
use tests::client::echo::Session;
use tests::process::signal_process;
use tests::systemd::{self, Clients, Setup};
use tests::wait::PATIENCE;

/// Flags that let sessions stay with their generation for the whole of a test.
const PATIENT: [&str; 4] = ["--probation", "0s", "--drain-timeout", "10m"];

/// Guards against a supervisor whose loop stands still: systemd replaces it, and nobody notices.
#[test]
fn a_supervisor_that_hangs_under_load_is_replaced_and_costs_nothing() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).line("WatchdogSec=2s").start().await?;
        let clients = Clients::of(&service).await?;
        let main = service.property("MainPID").await?;
        service.kill("STOP").await?;
        service.started_anew(1, PATIENCE).await?;
        service.wait_property("ActiveState", "active").await?;
        assert_ne!(service.property("MainPID").await?, main);
        assert_eq!(service.active().await?, 1);
        clients.unharmed_by(&service).await
    })
}

/// Guards against false alarms: an idle supervisor, and one whose relay hangs in its start, are well.
#[test]
fn a_supervisor_with_nothing_to_do_or_a_relay_that_hangs_is_not_taken_for_hung() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let setup = Setup::shipped(sandbox)?.flags(&["--probation", "0s", "--ready-timeout", "5s"]);
        let service = setup.line("WatchdogSec=1s").start().await?;
        service.plays("hang")?;
        let reload = service.systemctl("reload").await?;
        ensure!(!reload.status.success(), "{reload:?}");
        assert_eq!(service.property("NRestarts").await?, "0");
        assert_eq!(service.active().await?, 1);
        Ok(())
    })
}

/// Guards against a relay that hangs: the supervisor's own watchdog misses its counters, and another one serves.
#[test]
fn a_relay_that_hangs_is_said_to_be_unhealthy_and_replaced() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        // A program that has never said its counters need not say them.
        let _session = Session::connect(server()).await?;
        service.wait_for("counters", |status| status.sessions(1) == 1).await?;
        let relays = service.processes("echo")?;
        ensure!(relays.len() == 1, "{relays:?}");
        signal_process(relays[0], Signal::SIGSTOP)?;
        service.wait_for_message("unhealthy: no stats for 10 s").await?;
        service.wait_for("another relay", |status| status.state(2) == "active").await?;
        Session::connect(server()).await?.echo(b"served").await?;
        assert_eq!(service.property("NRestarts").await?, "0");
        signal_process(relays[0], Signal::SIGCONT)
    })
}
