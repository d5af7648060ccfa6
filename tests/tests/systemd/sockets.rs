//! TCP and unix listeners that a `.socket` unit holds.

use crate::units;
use anyhow::{Context as _, ensure};
use std::net::{Ipv6Addr, TcpStream};
use std::os::unix::net::UnixStream;
use tests::systemd::{self, Sandbox, Setup, shipped};

const UNIT: &str = "moq-supervise.socket";
/// The addresses in the shipped unit.
const PORT: u16 = 4444;
const PATH: &str = "/run/moq-relay.sock";

/// Both take connections.
fn connect(sandbox: &Sandbox) -> anyhow::Result<()> {
    TcpStream::connect((Ipv6Addr::LOCALHOST, PORT)).context("connecting by TCP")?;
    UnixStream::connect(sandbox.path(PATH)).with_context(|| format!("connecting to {PATH}"))?;
    Ok(())
}

/// The numbers of the listening sockets in the kernel, which they keep as long as they live.
async fn cookies(sandbox: &Sandbox) -> anyhow::Result<Vec<String>> {
    let text = sandbox.must(&["ss", "-H", "-x", "-t", "-l", "-n", "-e"]).await?;
    let ours = text.lines().filter(|line| line.contains(PATH) || line.contains(&format!(":{PORT} ")));
    let cookie = |line: &str| {
        // A TCP socket has its cookie, a unix one its inode before the `*` of its peer.
        let words: Vec<&str> = line.split_whitespace().collect();
        let tcp = words.iter().find(|word| word.starts_with("sk:")).copied();
        tcp.or_else(|| words.get(5).copied()).map(str::to_owned)
    };
    let mut found: Vec<String> = ours.filter_map(cookie).collect();
    found.sort_unstable();
    ensure!(found.len() == 2, "not two listeners: {text}");
    Ok(found)
}

/// Guards what such a unit is for: the sockets outlive everything, and the relay serves on these, not on others.
#[test]
fn listeners_of_a_socket_unit_outlive_reload_restart_and_stop() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        let setup = Setup::shipped(sandbox)?.file(UNIT, &shipped(UNIT)?).flags(&["--probation", "0s"]);
        let service = setup.install().await?;
        units::is_clean(sandbox, UNIT).await?;
        service.becomes_relay(&format!("[listen.tcp]\nbind = \"[::1]:{PORT}\"\n[listen.unix]\nbind = \"{PATH}\"\n"))?;
        sandbox.must(&["systemctl", "start", UNIT]).await?;
        let held = cookies(sandbox).await?;
        service.must("start").await?;
        for verb in ["reload", "restart", "reload"] {
            connect(sandbox)?;
            service.must(verb).await?;
            ensure!(cookies(sandbox).await? == held, "other sockets after {verb}");
        }
        service.must("stop").await?;
        sandbox.empty(&service.name).await?;
        ensure!(cookies(sandbox).await? == held, "other sockets after the stop");
        connect(sandbox)?;
        service.wait_property("ActiveState", "active").await?;
        ensure!(cookies(sandbox).await? == held, "other sockets after the second start");
        Ok(())
    })
}
