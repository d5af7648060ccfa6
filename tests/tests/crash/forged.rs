//! No packet and no ledger, however forged, makes any process say a token that would end a live connection.

use crate::told::kill;
use anyhow::{Context as _, ensure};
use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use tests::client;
use tests::client::line::Line;
use tests::client::silent::Silent;
use tests::scenario;
use tests::wait::{self, PATIENCE};

/// A hostile relay writes the IDs of live connections into its ledger, with their clients' real addresses, and IDs of
/// its own with the addresses of others; then it dies, so that its heir reads all that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_ledger_ends_no_live_connection_and_brings_others_one_small_datagram_each() -> anyhow::Result<()> {
    const VICTIMS: usize = 20;
    let (supervisor, program) = scenario::serving(&["--probation", "0s", "--drain-timeout", "5m"]).await?;
    let server = supervisor.address().await?;
    let (mut lines, mut sessions) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let line = Line::to(server).await?;
        sessions.push(Silent::connect(line.address(), 1).await?);
        lines.push(line);
    }
    let victim = UdpSocket::bind(client::local_for(server))?;
    victim.set_nonblocking(true)?;
    let there = SocketAddr::new(server.ip(), victim.local_addr()?.port());

    let mut ledger = String::new();
    for line in &lines {
        writeln!(ledger, "{} {}", hex::encode(line.last_id().context("it has spoken")?), line.far())?;
    }
    for number in 0..VICTIMS {
        writeln!(ledger, "own {number} {there}")?;
    }
    let mark = supervisor.folder().join("mark");
    let forged = supervisor.folder().join("forged");
    std::fs::write(&forged, ledger)?;
    program.plays(&format!(
        "quic [::]:0 1\nname echo\nledger\nhello\nadopt\nready\nactivated\nforge {}\nreport {}\nserve",
        forged.display(),
        mark.display()
    ))?;
    supervisor.upgrade().await?;
    program.becomes_echo()?;
    wait::until(PATIENCE, "the forged ledger", || Ok(mark.exists())).await?;
    kill(&supervisor, 2).await?;
    supervisor.wait_for("the heir", |status| status.state(3) == "active").await?;

    let mut came = Vec::new();
    wait::until(PATIENCE, "the resets of the dead one's own IDs", || {
        let mut buffer = [0; 1_500];
        while let Ok(length) = victim.recv(&mut buffer) {
            came.push(buffer[..length].to_vec());
        }
        Ok(came.len() >= VICTIMS)
    })
    .await?;
    ensure!(came.iter().all(|packet| packet.len() <= 42), "too long");
    // Whatever else the heir had to send has been sent before these: entries are told in their order.
    for client in &sessions {
        client.live_on().await?;
    }
    ensure!(victim.recv(&mut [0; 1_500]).is_err(), "more than one datagram for an entry");
    Ok(())
}

/// Whoever watches the network knows the IDs of live connections, and can send what he likes with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spoofed_late_and_mangled_packets_end_no_live_connection() -> anyhow::Result<()> {
    let (supervisor, _program) = scenario::serving(&["--probation", "0s", "--drain-timeout", "5m"]).await?;
    let server = supervisor.address().await?;
    let (mut lines, mut sessions) = (Vec::new(), Vec::new());
    // Connections of a draining generation, of a dead one, and of the active one.
    for generation in 1..=3 {
        for _ in 0..2 {
            let line = Line::to(server).await?;
            sessions.push((generation, Silent::connect(line.address(), 1).await?));
            lines.push(line);
        }
        if generation < 3 {
            supervisor.upgrade().await?;
        }
    }
    kill(&supervisor, 2).await?;
    supervisor.wait_for("the end of the second", |status| status.state(2) == "gone").await?;
    let attacker = tokio::net::UdpSocket::bind(client::local_for(server)).await?;
    attacker.connect(server).await?;
    let mut packets = Vec::new();
    for id in lines.iter().filter_map(Line::last_id) {
        for length in [9, 21, 22, 42, 43, 60, 1_200] {
            let mut short = vec![0x40; length];
            short[1..9].copy_from_slice(&id);
            packets.push(short);
        }
        // Initial, 0-RTT, Handshake and Retry, of this version and of another.
        for first in [0xc0, 0xd0, 0xe0, 0xf0] {
            for version in [[0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf], [0; 4]] {
                let mut long = vec![0; 1_200];
                long[0] = first;
                long[1..5].copy_from_slice(&version);
                long[5] = 8;
                long[6..14].copy_from_slice(&id);
                packets.push(long);
            }
        }
    }
    let mut answers = Vec::new();
    for _ in 0..20 {
        for packet in &packets {
            attacker.send(packet).await?;
        }
        let mut buffer = [0; 1_500];
        while let Ok(Ok(length)) = tokio::time::timeout(Duration::from_millis(20), attacker.recv(&mut buffer)).await {
            answers.push(buffer[..length].to_vec());
        }
    }
    ensure!(!answers.is_empty(), "the dead one's IDs are answered");
    // What an attacker heard, he can send to any client, in the server's name as far as a line goes.
    for (generation, sessions) in &sessions {
        if *generation != 2 {
            sessions.live_on().await.with_context(|| format!("of generation {generation}"))?;
        }
    }
    for line in &lines {
        for answer in &answers {
            line.inject(answer.clone());
        }
    }
    for (generation, sessions) in &sessions {
        if *generation != 2 {
            sessions.live_on().await.with_context(|| format!("of generation {generation}, after the replay"))?;
        }
    }
    Ok(())
}
