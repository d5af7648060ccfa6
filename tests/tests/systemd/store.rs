//! The fd store: everything is there before the service counts as started, and one that is too small is said.

use crate::server;
use anyhow::{Context as _, ensure};
use tests::client::echo::Session;
use tests::systemd::{self, Clients, Service, Setup};
use tests::wait::PATIENCE;

/// Flags that let sessions stay with their generation for the whole of a test.
const PATIENT: [&str; 4] = ["--probation", "0s", "--drain-timeout", "10m"];

async fn alarms(service: &Service<'_>) -> anyhow::Result<Vec<String>> {
    let text = service.sandbox.must(&["moq-supervise", "status", "--json"]).await?;
    let status: serde_json::Value = serde_json::from_str(&text)?;
    let alarms = status["alarms"].as_array().context("alarms")?;
    Ok(alarms.iter().filter_map(|line| line.as_str()).map(str::to_owned).collect())
}

/// Guards the time right after READY: a supervisor that is killed then must be followed by one that has everything.
#[test]
fn a_supervisor_that_is_killed_right_after_its_start_under_load_costs_nothing() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).install().await?;
        service.becomes_echo()?;
        let main = "kill -9 $(systemctl show --value --property MainPID moq-supervise)";
        sandbox.must(&["sh", "-c", &format!("systemctl start moq-supervise && {main}")]).await?;
        let clients = Clients::of(&service).await?;
        service.started_anew(1, PATIENCE).await?;
        service.wait_property("ActiveState", "active").await?;
        assert_eq!(service.active().await?, 1);
        clients.unharmed_by(&service).await
    })
}

/// Guards against a unit with too few: the outage would come at the first crash, without a warning. In the sandbox of the
/// unit, which can't ask systemd over D-Bus.
#[test]
fn a_store_that_is_too_small_is_said_at_the_start_and_nobody_leaves() -> anyhow::Result<()> {
    for too_small in ["FileDescriptorStoreMax=0", "FileDescriptorStoreMax=3"] {
        systemd::test(async |sandbox| {
            let service = Setup::shipped(sandbox)?.flags(&PATIENT).line(too_small).start().await?;
            service.wait_for_message("raise FileDescriptorStoreMax= in the unit").await?;
            let alarms = alarms(&service).await?;
            ensure!(alarms.iter().any(|line| line.contains("the fd store is full")), "{alarms:?}");
            service.kill("RTMIN+1").await?;
            service.wait_for_message("leave denied").await?;
            assert_eq!(service.active().await?, 1);
            Ok(())
        })?;
    }
    Ok(())
}

/// Guards the remedy that the alarm names: a limit that was raised counts at the next restart, which costs nothing.
#[test]
fn a_store_whose_limit_was_raised_lets_a_restart_under_load_cost_nothing() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).line("FileDescriptorStoreMax=3").start().await?;
        service.wait_for_message("raise FileDescriptorStoreMax= in the unit").await?;
        let clients = Clients::of(&service).await?;
        let sockets = service.cookies().await?;
        let line = "[Service]\nFileDescriptorStoreMax=100\n";
        sandbox.write("/run/systemd/system/moq-supervise.service.d/zzz-store.conf", line, 0o644)?;
        sandbox.must(&["systemctl", "daemon-reload"]).await?;
        service.must("restart").await?;
        assert_eq!(service.active().await?, 2);
        ensure!(service.cookies().await?.is_superset(&sockets), "a socket was lost: {sockets:?}");
        ensure!(alarms(&service).await?.is_empty(), "{:?}", alarms(&service).await?);
        clients.unharmed_by(&service).await
    })
}

/// Guards against false alarms, and against a store that is thought to be complete because it was at the start.
#[test]
fn a_store_that_is_too_small_for_an_overlap_is_said_while_it_lasts() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let needed = async || -> anyhow::Result<u32> { Ok(service.property("NFileDescriptorStore").await?.parse()?) };
        // Now and then there is a probe besides: what two looks find is what stays.
        let mut last = None;
        let same = async || -> anyhow::Result<Option<u32>> {
            let now = needed().await?;
            service.status().await?;
            Ok((last.replace(now) == Some(now)).then_some(now))
        };
        let first = tests::wait::eventually(PATIENCE, "a store that stays as it is", same).await?;
        ensure!(alarms(&service).await?.is_empty(), "{:?}", alarms(&service).await?);
        service.must("stop").await?;
        // A second generation is a socket, a channel and a process more; the socket stays.
        let line = format!("[Service]\nFileDescriptorStoreMax={}\n", first + 2);
        sandbox.write("/run/systemd/system/moq-supervise.service.d/zzz-store.conf", &line, 0o644)?;
        sandbox.must(&["systemctl", "daemon-reload"]).await?;
        service.must("start").await?;
        let session = Session::connect(server()).await?;
        service.must("reload").await?;
        service.wait_for_message("the fd store is full").await?;
        drop(session);
        service.wait_for("the end of the overlap", |status| status.generations.len() == 1).await?;
        let nothing = async || Ok(alarms(&service).await?.is_empty().then_some(()));
        tests::wait::eventually(PATIENCE, "no alarm", nothing).await?;
        assert_eq!(needed().await?, first + 1);
        let clients = Clients::of(&service).await?;
        service.kill("KILL").await?;
        service.started_anew(1, PATIENCE).await?;
        service.wait_property("ActiveState", "active").await?;
        clients.unharmed_by(&service).await
    })
}
