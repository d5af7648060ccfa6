//! Restart: another supervisor process, and with it an upgrade of the relay.

use crate::MOQ;
use anyhow::{Context as _, ensure};
use std::fs;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use tests::client::media;
use tests::client::webtransport::{Media, Session};
use tests::systemd::{self, Clients, Service, Setup};
use tests::wait::PATIENCE;

/// Flags that let sessions stay with their generation for the whole of a test.
const PATIENT: [&str; 4] = ["--probation", "0s", "--drain-timeout", "10m"];

/// Guards the main promise of this unit: the supervisor itself is replaced, and nobody notices.
#[test]
fn three_restarts_under_load_replace_both_programs_and_cost_nothing() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        let sockets = service.cookies().await?;
        let mut main = service.property("MainPID").await?;
        for generation in 2..=4 {
            service.must("restart").await?;
            let next = service.property("MainPID").await?;
            ensure!(next != main, "still the same supervisor: {next}");
            main = next;
            assert_eq!(service.active().await?, generation);
            clients.go_on().await?;
            ensure!(service.cookies().await?.is_superset(&sockets), "a socket was lost: {sockets:?}");
        }
        let status = service.status().await?;
        assert_eq!(status.sessions(1), systemd::SESSIONS as u64, "{status:?}");
        clients.unharmed_by(&service).await
    })
}

/// Guards the same for what is shipped: the real relay with a session and default settings.
#[test]
fn a_restart_with_the_real_relay_under_load_fails_no_handshake_and_ends_no_session() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.install().await?;
        service.becomes_relay("")?;
        service.must("start").await?;
        let server: SocketAddr = (Ipv6Addr::LOCALHOST, Service::PORT).into();
        let session = Session::connect(server, &Media::subscribe(&media::origin())).await?;
        let fingerprint = session.fingerprint();
        let clients = Clients::handshakes(Service::PORT, &[MOQ]).await?;
        service.must("restart").await?;
        service.wait_for("the next relay", |status| status.active().is_some_and(|one| one.generation == 2)).await?;
        let next = Session::connect(server, &Media::subscribe(&media::origin())).await?;
        assert_eq!(next.fingerprint(), fingerprint, "the generated certificate is kept");
        clients.unharmed().await?;
        ensure!(session.is_open(), "the session has ended");
        Ok(())
    })
}

/// Guards unattended upgrades, which restart what they have installed: a bad relay costs nothing and is reported.
#[test]
fn a_restart_whose_relay_fails_leaves_the_old_one_serving_and_says_so_under_load() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        service.becomes("exit 3")?;
        service.must("restart").await?;
        assert_eq!(service.active().await?, 1);
        service.wait_properties("StatusText", |text| text.starts_with("generation 1 active, 20 sessions")).await?;
        service.wait_properties("StatusText", |text| text.contains("status 3")).await?;
        clients.go_on().await?;
        service.becomes_echo()?;
        service.must("restart").await?;
        ensure!(service.active().await? > 1, "the next restart did not upgrade");
        clients.unharmed_by(&service).await
    })
}

/// Guards against a typing error in the unit: it costs nothing, and its correction is found by itself.
#[test]
fn a_restart_whose_supervisor_fails_costs_nothing_until_it_is_corrected() -> anyhow::Result<()> {
    const DROP_IN: &str = "/run/systemd/system/moq-supervise.service.d/zzz-wrong.conf";
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        let wrong = "[Service]\nExecStart=\nExecStart=/usr/bin/moq-supervise --no-such-flag --exec moq-relay\n";
        sandbox.write(DROP_IN, wrong, 0o644)?;
        sandbox.must(&["systemctl", "daemon-reload"]).await?;
        let restart = service.systemctl("restart").await?;
        ensure!(!restart.status.success(), "{restart:?}");
        service.wait_for_message("no-such-flag").await?;
        service.started_anew(3, PATIENCE).await?;
        clients.go_on().await?;
        sandbox.write(DROP_IN, "", 0o644)?;
        sandbox.must(&["systemctl", "daemon-reload"]).await?;
        service.wait_property("ActiveState", "active").await?;
        ensure!(service.status().await?.active().is_some(), "nobody is active");
        clients.unharmed_by(&service).await
    })
}

/// Guards operators who are not sure that it worked.
#[test]
fn restarts_and_reloads_in_quick_succession_under_load_cost_nothing() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        for _ in 0..4 {
            let (restart, reload) = tokio::join!(service.systemctl("restart"), service.systemctl("reload"));
            // systemd itself refuses a reload of what it is about to restart; a restart never fails.
            ensure!(restart?.status.success(), "{}", service.describe().await);
            let _refused = reload?;
        }
        service.wait_for("one active generation", |status| status.active().is_some()).await?;
        clients.unharmed_by(&service).await
    })
}

/// Guards a fix of the supervisor: `reload` brings it in without a new process.
#[test]
fn a_reload_after_a_new_supervisor_was_installed_runs_it_in_the_same_process_under_load() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        let (main, sockets) = (service.property("MainPID").await?, service.cookies().await?);
        let running = async || -> anyhow::Result<u64> {
            let pid = service.property("MainPID").await?;
            Ok(fs::metadata(sandbox.path(&format!("/proc/{pid}/exe"))).context("the running program")?.ino())
        };
        let old = running().await?;
        for generation in 2..=3 {
            service.new_supervisor()?;
            service.must("reload").await?;
            assert_eq!(service.property("MainPID").await?, main);
            assert_eq!(service.active().await?, generation);
        }
        assert_ne!(running().await?, old, "the old program is still running");
        assert_eq!(service.property("NRestarts").await?, "0");
        ensure!(service.cookies().await?.is_superset(&sockets), "a socket was lost: {sockets:?}");
        clients.unharmed_by(&service).await
    })
}
