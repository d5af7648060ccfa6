//! From moq-relay.service, as packaged today, to a supervised one, by a drop-in.

use crate::{MOQ, server, units};
use anyhow::{Context as _, ensure};
use std::path::Path;
use tests::client::media;
use tests::client::webtransport::{Media, Session};
use tests::systemd::{self, Clients, Sandbox, Service, Setup, Units};
use tests::wait::{self, PATIENCE};

const DROP_IN: &str = "moq-relay.service.d/supervise.conf";

/// A relay that also tells systemd that it is ready, as the packaged one does when it runs alone.
const NOTIFYING: &str = r#"
[ -n "$NOTIFY_SOCKET" ] || exec /opt/moq/moq-relay "$@"
exec python3 -c '
import os, socket, sys
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
os.execv("/opt/moq/moq-relay", ["moq-relay"] + sys.argv[1:])
' "$@""#;

fn packaged() -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/moq-relay.service");
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// The packaged unit with a drop-in.
pub(crate) fn with<'a>(sandbox: &'a Sandbox, drop_in: &Units) -> anyhow::Result<Setup<'a>> {
    Ok(Setup::named(sandbox, "moq-relay.service")?
        .file("moq-relay.service", &packaged()?)
        .file(DROP_IN, drop_in.text()))
}

async fn session() -> anyhow::Result<Session> {
    Session::connect(server(), &Media::subscribe(&media::origin())).await
}

/// Guards what the page promises to who migrates, and what it warns of.
#[test]
fn the_first_restart_after_the_drop_in_cuts_and_the_next_does_not() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let setup = Setup::named(sandbox, "moq-relay.service")?.file("moq-relay.service", &packaged()?);
        let service = setup.line("Environment=MOQ_DRAIN_TIMEOUT=1s").install().await?;
        // The packaged filter kills a relay that pins its workers.
        service.becomes_relay("[runtime]\npin = false\n")?;
        service.becomes(NOTIFYING)?;
        service.must("start").await?;
        let first = session().await?;
        sandbox.write(&format!("/run/systemd/system/{DROP_IN}"), Units::shipped(DROP_IN)?.text(), 0o644)?;
        sandbox.must(&["systemctl", "daemon-reload"]).await?;
        ensure!(first.is_open(), "the drop-in alone ended the session");
        service.becomes_relay("")?;
        service.must("restart").await?;
        wait::until(PATIENCE, "the end of the first session", || Ok(!first.is_open())).await?;

        let second = session().await?;
        let clients = Clients::handshakes(Service::PORT, &[MOQ]).await?;
        service.must("restart").await?;
        service.must("reload").await?;
        clients.unharmed().await?;
        ensure!(second.is_open(), "the second restart ended a session");
        service.must("stop").await?;
        sandbox.empty(&service.name).await
    })
}

/// Guards the drop-in against lines that systemd does not know, and against opening what the package had closed.
#[test]
fn the_drop_in_is_clean_and_opens_nothing() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let service = with(sandbox, &Units::shipped(DROP_IN)?)?.install().await?;
        units::is_clean(sandbox, &service.name).await?;
        let after = units::exposure(sandbox, &service.name).await?;
        sandbox.write("/run/systemd/system/packaged.service", &packaged()?, 0o644)?;
        sandbox.must(&["systemctl", "daemon-reload"]).await?;
        let before = units::exposure(sandbox, "packaged.service").await?;
        ensure!(after <= before, "exposed by {before} before the drop-in, and by {after} with it");
        Ok(())
    })
}
