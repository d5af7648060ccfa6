//! Reload: an upgrade of the relay.

use crate::MOQ;
use anyhow::Context as _;
use tests::systemd::{self, Clients, Service, Setup};

/// Flags that let sessions stay with their generation for the whole of a test.
const PATIENT: [&str; 4] = ["--probation", "0s", "--drain-timeout", "10m"];

/// Guards the main promise, and systemd's picture of the service: one main process, never restarted.
#[test]
fn ten_reloads_under_load_cost_nothing_and_keep_the_main_process() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        let (main, sockets) = (service.property("MainPID").await?, service.cookies().await?);
        for generation in 2..=11 {
            service.must("reload").await?;
            assert_eq!(service.active().await?, generation);
            assert_eq!(service.property("MainPID").await?, main);
            clients.go_on().await?;
        }
        assert!(service.cookies().await?.is_superset(&sockets), "a socket was lost: {sockets:?}");
        assert_eq!(service.property("NRestarts").await?, "0");
        let status = service.status().await?;
        assert_eq!(status.sessions(1), systemd::SESSIONS as u64, "{status:?}");
        assert!(status.generations.iter().all(|generation| generation.foreign == 0), "{status:?}");
        clients.unharmed_by(&service).await
    })
}

/// Guards the same for what is shipped: the real relay, pinned and with default settings.
#[test]
fn a_reload_of_the_real_relay_under_load_fails_no_handshake() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.install().await?;
        service.becomes_relay("")?;
        service.must("start").await?;
        let clients = Clients::handshakes(Service::PORT, &[MOQ]).await?;
        service.must("reload").await?;
        assert_eq!(service.active().await?, 2);
        clients.unharmed().await?;
        let pinning = service.journal().await?.into_iter().find(|line| line.contains("failed to pin"));
        assert_eq!(pinning, None);
        Ok(())
    })
}

/// Guards deployments: `systemctl reload` says whether the new version serves.
#[test]
fn a_reload_whose_relay_fails_fails_and_the_old_one_serves_on_under_load() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&PATIENT).start().await?;
        let clients = Clients::of(&service).await?;
        let scripts = ["exit 3", "exec /no/such/program", "kill -SEGV $$"];
        for script in scripts {
            service.becomes(script)?;
            let reload = service.systemctl("reload").await?;
            assert!(!reload.status.success(), "{script}: {reload:?}");
            assert_eq!(service.active().await?, 1);
            assert_eq!(service.property("ActiveState").await?, "active");
            clients.go_on().await?;
        }
        service.wait_for_message("status 3").await?;
        service.becomes_echo()?;
        service.must("reload").await?;
        let status = service.status().await?;
        let first = status.generation(1).context("the first generation has its sessions still")?;
        assert_eq!(first.state, "draining");
        clients.unharmed_by(&service).await
    })
}
