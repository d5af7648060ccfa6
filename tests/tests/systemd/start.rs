//! Start: what READY means, what the status text says, what becomes of a start that fails.

use crate::server;
use tests::client::echo::Session;
use tests::systemd::{self, Setup};

/// Guards units that are ordered after this one: they rely on it.
#[test]
fn start_returns_when_the_relay_serves_and_not_before() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.install().await?;
        service.becomes_echo_later()?;
        sandbox.must(&["systemctl", "start", "--no-block", &service.name]).await?;
        service.wait_for("a relay that is starting", |status| status.state(1) == "starting").await?;
        assert_eq!(service.property("ActiveState").await?, "activating");
        service.may_start()?;
        service.must("start").await?;
        Session::connect(server()).await?.echo(b"served").await?;
        Ok(())
    })
}

/// Guards what `systemctl status` shows: who serves, how much, and how long a drain goes on.
#[test]
fn the_status_text_says_in_words_who_serves_and_who_drains() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let setup = Setup::shipped(sandbox)?.flags(&["--probation", "0s", "--drain-timeout", "5m"]);
        let service = setup.start().await?;
        service.wait_property("StatusText", "generation 1 active, 0 sessions").await?;
        let _one = Session::connect(server()).await?;
        let _two = Session::connect(server()).await?;
        service.wait_property("StatusText", "generation 1 active, 2 sessions").await?;
        service.must("reload").await?;
        let draining = "generation 2 active, 0 sessions; generation 1 draining, 2 left, 4 m ";
        service.wait_properties("StatusText", |text| text.starts_with(draining)).await?;
        Ok(())
    })
}

/// Guards the first installation: an error in the settings is shown, and its correction needs no further command.
#[test]
fn a_start_that_fails_says_why_and_is_tried_until_it_succeeds() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = Setup::shipped(sandbox)?.install().await?;
        service.becomes_relay("no_such_setting = 1\n")?;
        let start = service.systemctl("start").await?;
        assert!(!start.status.success(), "{start:?}");
        service.wait_for_message("no_such_setting").await?;
        service.becomes_relay("")?;
        service.wait_property("ActiveState", "active").await?;
        assert!(service.status().await?.active().is_some());
        Ok(())
    })
}
