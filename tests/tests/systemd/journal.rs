//! The journal has what every generation says, and the service does not depend on it.

use anyhow::ensure;
use tests::systemd::{self, Clients, Setup};

const JOURNALD: [&str; 3] = ["systemd-journald.socket", "systemd-journald-dev-log.socket", "systemd-journald.service"];

/// A line that only this generation of the real relay writes when it begins to serve.
fn serving(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.contains("listening for QUIC")).count()
}

/// Guards the operator's only view of a relay.
#[test]
fn lines_of_every_generation_are_in_the_journal_also_after_journald_was_restarted() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.flags(&["--probation", "0s"]).install().await?;
        service.becomes_relay("")?;
        service.must("start").await?;
        service.must("reload").await?;
        service.wait_for_message("listening for QUIC").await?;
        assert_eq!(serving(&service.journal().await?), 2);
        sandbox.must(&["systemctl", "restart", "systemd-journald.service"]).await?;
        service.must("reload").await?;
        // The second generation, started before, is told to drain; the third, started after, says that it serves.
        service.wait_for_message("the upgrade to generation 3 is committed").await?;
        let lines = service.journal().await?;
        let drains = lines.iter().filter(|line| line.contains("draining")).count();
        ensure!(serving(&lines) == 3 && drains == 2, "{lines:#?}");
        Ok(())
    })
}

/// Guards against death by SIGPIPE or EPIPE: without a journal the lines are lost, and nothing else.
#[test]
fn without_a_journal_everybody_serves_on_under_load() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let flags = ["--probation", "0s", "--drain-timeout", "10m", "--log-level", "trace"];
        let service = Setup::shipped(sandbox)?.flags(&flags).start().await?;
        let clients = Clients::of(&service).await?;
        for unit in JOURNALD {
            sandbox.must(&["systemctl", "stop", unit]).await?;
        }
        let journald = sandbox.run(&["systemctl", "is-active", "systemd-journald.service"]).await?;
        ensure!(!journald.status.success(), "there is still a journal");
        service.must("reload").await?;
        assert_eq!(service.active().await?, 2);
        assert_eq!(service.status().await?.sessions(1), systemd::SESSIONS as u64);
        clients.unharmed_by(&service).await
    })
}

/// Guards wrappers that close what they don't use: no socket may land on descriptor 1 or 2 and be written to.
#[test]
fn closed_standard_streams_do_no_harm_under_load() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let command = "/usr/bin/moq-supervise --exec moq-relay --probation 0s --drain-timeout 10m";
        let line = format!("ExecStart=\nExecStart=/bin/sh -c 'exec {command} <&- >&- 2>&-'");
        let service = Setup::shipped(sandbox)?.line(&line).start().await?;
        let clients = Clients::of(&service).await?;
        service.must("reload").await?;
        assert_eq!(service.active().await?, 2);
        clients.unharmed_by(&service).await
    })
}
