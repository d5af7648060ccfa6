//! Which process gets which packet, in the cases that other schemes are reported to get wrong.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpStream as StdTcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::{Duration, Instant};
use tests::client::echo::Session;
use tests::client::handshake;
use tests::scenario::{self, HeldPath};
use tests::supervisor::{Setup, Status, Supervisor};
use tests::tls::{self, IDLE_TIMEOUT, Seen};
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, process, procfs, program};
use tokio::task::JoinSet;

/// A supervised echo server on any port, IPv4 and IPv6, whose old generations stay as long as they have sessions.
async fn echo(probation: &str) -> anyhow::Result<Supervisor> {
    let flags = ["--probation", probation, "--drain-timeout", "5m"];
    Setup::new(program::echo()?)?.flags(flags).child(["[::]:0"]).serve().await
}

/// The same server over IPv4.
async fn four(supervisor: &Supervisor) -> anyhow::Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, supervisor.address().await?.port())))
}

/// Many handshakes, 32 at a time, each from a port of its own. All must succeed, none may wait for a timeout that says
/// that its packets were lost.
async fn handshakes(server: SocketAddr, count: usize) -> anyhow::Result<()> {
    let config = tls::client(&[], &Seen::default())?;
    let mut open = JoinSet::new();
    let mut slowest = Duration::ZERO;
    for begun in 0..count {
        if begun >= 32 {
            slowest = slowest.max(open.join_next().await.context("one is open")???);
        }
        let config = config.clone();
        open.spawn(async move { handshake::once(server, &config).await });
    }
    while let Some(took) = open.join_next().await {
        slowest = slowest.max(took??);
    }
    ensure!(slowest < IDLE_TIMEOUT / 2, "one took {slowest:?}");
    Ok(())
}

/// Guards against sockets of draining workers that still get Initials, so that new clients hang: not one of 2 000, nor
/// after twenty upgrades, in which every member has been used again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_generation_gets_none_of_two_thousand_handshakes() -> anyhow::Result<()> {
    const CLIENTS: usize = 2_000;
    let supervisor = echo("0s").await?;
    let server = supervisor.address().await?;
    let mut held = Vec::new();
    for upgrades in [1_u32, 20] {
        held.push(Session::connect(server).await?);
        for _ in 0..upgrades {
            supervisor.upgrade().await?;
            // The one before it stays for its last call.
            supervisor.wait_for("room", |status| status.generations.len() <= held.len() + 1).await?;
        }
        // Each of the old ones has said that it has its session, and so the handshake of it.
        let told = |status: &Status| {
            let (_active, old) = status.generations.split_last()?;
            old.iter().all(|old| status.sessions(old.generation) == 1).then_some(old.len())
        };
        let status = supervisor.wait_for("no others", |status| told(status) == Some(held.len())).await?;
        let old: Vec<u32> = status.generations[..held.len()].iter().map(|old| old.generation).collect();
        let active = status.active().context("one is active")?.generation;
        let mut before = Vec::new();
        for old in &old {
            before.push(scenario::counter(&supervisor, *old, "handshakes").await?);
        }
        handshakes(server, CLIENTS).await?;
        supervisor.wait_for("an idle active generation", |status| status.sessions(active) == 0).await?;
        wait::eventually(PATIENCE, "all handshakes in the active one", async || {
            let count = scenario::counter(&supervisor, active, "handshakes").await?;
            Ok((count == CLIENTS as u64).then_some(()))
        })
        .await?;
        for (old, before) in old.iter().zip(before) {
            assert_eq!(scenario::counter(&supervisor, *old, "handshakes").await?, before, "generation {old}");
        }
    }
    for session in &held {
        session.echo(b"still there").await?;
    }
    Ok(())
}

/// Guards against schemes that assume one datagram from the client before the first of the server: one with a
/// post-quantum key share comes in two, between which the switch happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_hello_in_two_datagrams_with_the_switch_between_them() -> anyhow::Result<()> {
    let supervisor = echo("0s").await?;
    let server = four(&supervisor).await?;
    let _held = Session::connect(server).await?;
    let config = tls::post_quantum_client(&[], &Seen::default())?;
    for first in 1..=2 {
        let path = HeldPath::to(server, first).await?;
        let (entrance, config) = (path.entrance, config.clone());
        let begin = Instant::now();
        let client = tokio::spawn(async move { handshake::once(entrance, &config).await });
        wait::until(PATIENCE, "both datagrams", || Ok(path.seen().to_server.len() >= 2)).await?;
        supervisor.upgrade().await?;
        path.release();
        client.await?.with_context(|| format!("the switch after {first}"))?;
        assert!(begin.elapsed() < IDLE_TIMEOUT, "{:?}", begin.elapsed());
    }
    Ok(())
}

/// Guards against a late packet of a connection that is over, which another process would answer by a reset or take for
/// a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_packets_of_a_closed_connection_get_no_answer() -> anyhow::Result<()> {
    let supervisor = echo("0s").await?;
    let path = HeldPath::to(four(&supervisor).await?, usize::MAX).await?;
    let session = Session::connect(path.entrance).await?;
    for _ in 0..5 {
        session.echo(b"something to be repeated").await?;
    }
    drop(session);
    supervisor.wait_for("its end", |status| status.sessions(1) == 0).await?;
    supervisor.upgrade().await?;
    supervisor.wait_for("the new one alone", |status| status.generations.len() == 1).await?;
    let short: Vec<Vec<u8>> = path.seen().to_server.into_iter().filter(|bytes| bytes[0] & 0x80 == 0).collect();
    ensure!(short.len() >= 5, "only {} short headers", short.len());
    let answers = path.seen().to_client.len();
    for datagram in short.iter().cycle().take(200) {
        path.inject(datagram).await?;
    }
    // Whatever is answered comes before the end of a handshake that begins afterwards.
    for _ in 0..3 {
        drop(Session::connect(supervisor.address().await?).await?);
    }
    assert_eq!(path.seen().to_client.len(), answers, "somebody has answered");
    Ok(())
}

/// The connection ID that a server chose, in a datagram that begins with a long header (RFC 9000 §17.2).
fn source_id(datagram: &[u8]) -> Option<Vec<u8>> {
    if datagram.first()? & 0x80 == 0 {
        return None;
    }
    let after_destination = 6 + usize::from(*datagram.get(5)?);
    let length = usize::from(*datagram.get(after_destination)?);
    datagram.get(after_destination + 1..after_destination + 1 + length).map(<[u8]>::to_vec)
}

/// Guards against IDs that come again in a later process: their reset tokens may be known by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_id_comes_twice_in_sixty_generations() -> anyhow::Result<()> {
    let supervisor = echo("0s").await?;
    let server = four(&supervisor).await?;
    let config = tls::client(&[], &Seen::default())?;
    let mut seen = BTreeSet::new();
    for _ in 0..60 {
        let paths = [HeldPath::to(server, usize::MAX).await?, HeldPath::to(server, usize::MAX).await?];
        tokio::try_join!(handshake::once(paths[0].entrance, &config), handshake::once(paths[1].entrance, &config))?;
        for path in &paths {
            let ids: BTreeSet<_> = path.seen().to_client.iter().filter_map(|bytes| source_id(bytes)).collect();
            ensure!(!ids.is_empty() && ids.iter().all(|id| id.len() == protocol::cid::CID_LEN), "{ids:?}");
            for id in ids {
                assert!(seen.insert(id.clone()), "{id:?} came twice");
            }
        }
        // Sessions that have just been closed may make it wait for room.
        supervisor.wait_for("room", |status| status.generations.len() < 4).await?;
        supervisor.upgrade().await?;
    }
    Ok(())
}

/// A loopback address that no other test uses, so that one port of it is free for every kind of socket.
fn own_address() -> SocketAddr {
    let [a, b, c] = [rand::random_range(1..=254), rand::random_range(0..=254), rand::random_range(1..=254)];
    SocketAddr::from((Ipv4Addr::new(127, a, b, c), 4443))
}

/// Guards against a socket that is taken for one of another kind: TCP and UDP at the same port, and a unix socket, keep
/// their kinds through upgrades.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_port_for_udp_and_tcp_and_a_unix_socket_beside_them() -> anyhow::Result<()> {
    let address = own_address();
    let setup = Setup::new("program")?.flags(["--probation", "0s"]);
    let path = setup.folder().join("relay.sock");
    let listeners = [
        "--listen".to_owned(),
        address.to_string(),
        "--listen-tcp-bind".to_owned(),
        address.to_string(),
        "--listen-unix-bind".to_owned(),
        path.display().to_string(),
    ];
    let open = ["--listen-tls-generate", "localhost", "--auth-public", "**"];
    let supervisor = setup.exec(program::relay()?).child(&listeners).child(open).serve().await?;
    for generation in 1..4 {
        let sink = tests::client::media::origin();
        let media = tests::client::webtransport::Media::subscribe(&sink);
        drop(tests::client::webtransport::Session::connect(address, &media).await?);
        drop(StdTcpStream::connect(address).context("TCP")?);
        drop(StdUnixStream::connect(&path).context("the unix socket")?);
        let status = scenario::status(&supervisor).await?;
        let kinds: BTreeSet<&str> =
            status["listeners"].as_array().into_iter().flatten().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(kinds, ["quic", "tcp", "unix"].into(), "{status}");
        assert_eq!(supervisor.upgrade().await?, generation + 1);
    }
    Ok(())
}

/// Guards against a process that removes the path of a unix socket which its successor serves: the inode is the same
/// after an upgrade, a failed one, a rollback and a crash, and gone after the stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_keeps_its_inode_until_the_stop() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "1m"]);
    let path = setup.folder().join("relay.sock");
    let program = Replaceable::new(setup.folder());
    let wants = format!("unix {}\nhello\nadopt\n", path.display());
    program.plays(&format!("{wants}ready\nserve"))?;
    let exec = program.path().to_owned();
    let mut supervisor = setup.exec(exec).serve().await?;
    let inode = || Ok::<_, anyhow::Error>(std::fs::symlink_metadata(&path)?.ino());
    let first = inode()?;

    program.plays(&format!("{wants}failed no"))?;
    assert!(!supervisor.command("upgrade", &[]).await?.status.success());
    assert_eq!(inode()?, first, "after a failed upgrade");

    program.plays(&format!("{wants}ready\nserve"))?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    supervisor.wait_for("the probation", |status| status.state(3) == "active").await?;
    assert!(supervisor.command("rollback", &[]).await?.status.success());
    supervisor.wait_for("the old one alone", |status| status.generations.len() == 1).await?;
    assert_eq!(inode()?, first, "after a rollback");

    let active = supervisor.status().await?.active().and_then(|active| active.pid).context("its pid")?;
    process::signal_process(active, Signal::SIGKILL)?;
    supervisor.wait_for("its successor", |status| status.active().is_some_and(|active| active.generation > 3)).await?;
    assert_eq!(inode()?, first, "after a crash");
    StdUnixStream::connect(&path).context("the same socket")?;

    supervisor.process.signal(Signal::SIGTERM)?;
    supervisor.process.wait(PATIENCE).await?;
    assert!(!path.exists(), "the path is left behind");
    Ok(())
}

/// Guards both sides of a path that exists: one that nobody listens at is reclaimed, one that somebody serves is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_unix_path_is_reclaimed_and_a_served_one_is_not() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("relay.sock");
    let script = format!("unix {}\nhello\nadopt\nready\nserve", path.display());
    let start = || {
        let setup = Setup::new("program")?;
        let program = Replaceable::new(setup.folder());
        program.plays(&script)?;
        let exec = program.path().to_owned();
        anyhow::Ok(setup.exec(exec))
    };
    let mut first = start()?.serve().await?;
    let inode = std::fs::symlink_metadata(&path)?.ino();
    let mut second = start()?.start()?;
    let refused = second.process.wait(PATIENCE).await?;
    assert_eq!(refused.code(), Some(i32::from(protocol::exit::IN_USE)), "{}", second.process.tail());
    assert_eq!(std::fs::symlink_metadata(&path)?.ino(), inode);

    let children = procfs::descendants(first.process.pid());
    first.process.signal(Signal::SIGKILL)?;
    first.process.wait(PATIENCE).await?;
    wait::until(PATIENCE, "the end of its child", || Ok(!children.iter().any(|pid| procfs::is_alive(*pid)))).await?;
    assert!(path.exists(), "a supervisor that is killed removes nothing");
    let _third = start()?.serve().await?;
    StdUnixStream::connect(&path).context("the reclaimed path")?;
    Ok(())
}

/// Guards against a port that somebody else takes a share of without anybody noticing: the alarm names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_socket_in_the_group_is_an_alarm() -> anyhow::Result<()> {
    let supervisor = Setup::new(program::echo()?)?.child(["127.0.0.1:0"]).serve().await?;
    let address = supervisor.address().await?;
    let intruder = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    intruder.set_reuse_port(true)?;
    intruder.bind(&address.into()).context("joining the group")?;
    let intruder = UdpSocket::from(intruder);
    let alarms = wait::eventually(PATIENCE, "an alarm", async || {
        let status = scenario::status(&supervisor).await?;
        let alarms = status["alarms"].as_array().context("alarms")?.clone();
        Ok((!alarms.is_empty()).then_some(alarms))
    })
    .await?;
    let alarm = alarms[0].as_str().context("a line")?;
    assert!(alarm.contains(&address.to_string()) && alarm.contains(&std::process::id().to_string()), "{alarm}");
    drop(intruder);
    Ok(())
}
