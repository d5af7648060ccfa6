//! Who speaks to systemd: the supervisor alone.

use anyhow::ensure;
use std::fs;
use tests::systemd::{self, Setup};

/// Guards against a relay that takes the service for its own: one that says READY or STOPPING in our place.
#[test]
fn relays_have_no_way_to_the_service_manager() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&["--probation", "0s"]).start().await?;
        for _ in 0..3 {
            service.must("reload").await?;
            let relays = service.processes("echo")?;
            ensure!(!relays.is_empty(), "no relay is running");
            for relay in relays {
                // One that has just drained may be gone.
                let Ok(environment) = fs::read(format!("/proc/{relay}/environ")) else { continue };
                let environment = String::from_utf8_lossy(&environment);
                for name in ["NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "FDSTORE="] {
                    let found = environment.split('\0').find(|variable| variable.starts_with(name));
                    ensure!(found.is_none(), "a relay has {found:?}");
                }
            }
        }
        let said = sandbox.must(&["journalctl", "--no-pager", "--output=cat", "_PID=1"]).await?;
        ensure!(!said.contains("reception only permitted"), "{said}");
        Ok(())
    })
}
