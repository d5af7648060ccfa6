//! The sockets outlive the process: who comes during the outage waits in them.

use crate::told::kill;
use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use std::net::{SocketAddr, UdpSocket};
use tests::client::echo::Session;
use tests::client::handshake::Load;
use tests::client::media;
use tests::client::webtransport::{self, Media};
use tests::process::signal_process;
use tests::supervisor::Setup;
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, client, program, relay, scenario};

/// Handshakes a second.
const RATE: u32 = 20;

/// Of the handshakes that are begun at any moment around a crash, only those may fail that were in flight at it: the dead one
/// had begun to answer, so their client knows an ID that leads nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_under_load_wait_for_the_successor() -> anyhow::Result<()> {
    let setup = Setup::new(program::relay()?)?.flags(["--probation", "0s"]).child(relay::OPEN);
    let supervisor = setup.child(["--runtime-workers", "2"]).serve().await?;
    let server = supervisor.address().await?;
    let load = Load::start(&[server], &["h3"], RATE)?;
    let mut kills = Vec::new();
    for generation in 1..=3 {
        let before = load.so_far().completed.len();
        wait::until(PATIENCE, "handshakes", || Ok(load.so_far().completed.len() >= before + 15)).await?;
        let before = load.elapsed();
        kill(&supervisor, generation).await?;
        kills.push(before..load.elapsed());
        supervisor.wait_for("a successor", |status| status.state(generation + 1) == "active").await?;
    }
    let before = load.so_far().completed.len();
    wait::until(PATIENCE, "handshakes", || Ok(load.so_far().completed.len() >= before + 15)).await?;
    let report = load.stop().await?;
    for failure in &report.failed {
        let in_flight = kills.iter().any(|kill| failure.begun <= kill.end && failure.ended >= kill.start);
        ensure!(in_flight, "{failure}; killed at {kills:?}");
    }
    Ok(())
}

/// A first flight of a version that nobody speaks, to which any server answers (RFC 9000 section 6.1).
const UNKNOWN_VERSION: [u8; 15] = [0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];

/// Sends that once, from a socket of its own.
fn knock(server: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(client::local_for(server))?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    knock_again(&socket)?;
    Ok(socket)
}

fn knock_again(socket: &UdpSocket) -> anyhow::Result<()> {
    let mut packet = [0; 1_200];
    packet[..UNKNOWN_VERSION.len()].copy_from_slice(&UNKNOWN_VERSION);
    socket.send(&packet)?;
    Ok(())
}

/// The successor has the very sockets of the dead one, and what waits in them is served: the first datagram is sent once and
/// answered, though nobody was there when it came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_flight_that_comes_during_the_outage_is_served() -> anyhow::Result<()> {
    let (supervisor, program) = scenario::serving(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    // The successor does nothing before the datagram has been sent.
    let gate = supervisor.folder().join("gate");
    let waits = format!("until test -e '{}'; do sleep 0.01; done", gate.display());
    program.contains(
        &format!(
            "#!/bin/sh
{waits}
exec '{}' '[::]:0'
",
            program::echo()?.display()
        ),
        0o755,
    )?;
    kill(&supervisor, 1).await?;
    supervisor.wait_for("the outage", |status| status.phase == "failed").await?;
    let client = knock(server)?;
    let connecting = tokio::spawn(Session::connect(server));
    ensure!(client.recv(&mut [0; 1_500]).is_err(), "nobody is there");
    std::fs::write(gate, "")?;
    wait::until(PATIENCE, "an answer", || Ok(client.recv(&mut [0; 1_500]).is_ok())).await?;
    connecting.await??.echo(b"served").await?;
    assert_eq!(supervisor.status().await?.state(2), "active");
    Ok(())
}

/// Guards against a successor that begins handshakes with clients that gave up long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_that_waited_too_long_get_no_answer() -> anyhow::Result<()> {
    let (supervisor, program) = scenario::serving(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    program.contains(&format!("#!/bin/sh\nsleep 4\nexec '{}' '[::]:0'\n", program::echo()?.display()), 0o755)?;
    kill(&supervisor, 1).await?;
    supervisor.wait_for("the outage", |status| status.phase == "failed").await?;
    let ghost = knock(server)?;
    supervisor.wait_for("a successor", |status| status.state(2) == "active").await?;
    Session::connect(server).await?.echo(b"serves").await?;
    let answer = ghost.recv(&mut [0; 1_500]);
    ensure!(answer.is_err(), "a ghost was answered: {answer:?}");
    // It is answered when somebody is there, so the silence was the emptied queue.
    knock_again(&ghost)?;
    wait::until(PATIENCE, "an answer", || Ok(ghost.recv(&mut [0; 1_500]).is_ok())).await
}

/// Better told to leave one day than not served at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_resort_after_three_failed_respawns_is_a_draining_generation() -> anyhow::Result<()> {
    let (supervisor, program) = scenario::serving(&["--probation", "0s", "--drain-timeout", "5m"]).await?;
    let server = supervisor.address().await?;
    let first = Session::connect(server).await?;
    first.echo(b"first").await?;
    supervisor.upgrade().await?;
    program.plays("exit 1")?;
    kill(&supervisor, 2).await?;
    supervisor.wait_for("the stand-in", |status| status.state(1) == "active").await?;
    let status = scenario::status(&supervisor).await?;
    ensure!(status["phase"] == "failed", "{status}");
    let newcomer = Session::connect(server).await?;
    newcomer.echo(b"newcomer").await?;
    assert_eq!(supervisor.status().await?.state(1), "active");

    // With the program mended, an operator need not wait for the backoff; then the stand-in drains again.
    program.becomes_echo()?;
    let active = supervisor.upgrade().await?;
    let status = supervisor.status().await?;
    assert_eq!((status.state(active), status.state(1)), ("active", "draining"));
    first.echo(b"still first").await?;
    newcomer.echo(b"still newcomer").await?;
    Ok(())
}

/// Who comes to a stand-in is not told to go, as those that it had before its drain were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_stands_in_as_the_last_resort_tells_no_newcomer_to_go() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "0s", "--drain-timeout", "5m"]);
    let program = Replaceable::new(setup.folder());
    program.becomes(&program::relay()?, &relay::OPEN)?;
    let supervisor = setup.exec(program.path()).serve().await?;
    let server = supervisor.address().await?;
    let media = Media::subscribe(&media::origin());
    let stays = webtransport::Session::connect(server, &media).await?;
    supervisor.upgrade().await?;
    stays.goaway(PATIENCE).await?;
    program.plays("exit 1")?;
    kill(&supervisor, 2).await?;
    supervisor.wait_for("the stand-in", |status| status.state(1) == "active").await?;
    let newcomer = webtransport::Session::connect(server, &media).await?;
    supervisor.wait_for("both sessions", |status| status.sessions(1) == 2).await?;
    ensure!(newcomer.is_open() && !newcomer.told(), "{}", supervisor.process.tail());

    // Until somebody else is there.
    program.becomes(&program::relay()?, &relay::OPEN)?;
    ensure!(!newcomer.told(), "{}", supervisor.process.tail());
    supervisor.upgrade().await?;
    newcomer.goaway(PATIENCE).await?;
    ensure!(stays.is_open() && newcomer.is_open());
    Ok(())
}

/// A relay that is killed while the supervisor is stopped dead, which also holds the sockets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_while_the_supervisor_stands_still_is_seen_when_it_goes_on() -> anyhow::Result<()> {
    let supervisor = Setup::new(program::echo()?)?.flags(["--probation", "0s"]).child(["[::]:0"]).serve().await?;
    let server = supervisor.address().await?;
    let pid = supervisor.status().await?.active().and_then(|active| active.pid).context("it runs")?;
    supervisor.process.signal(Signal::SIGSTOP)?;
    signal_process(pid, Signal::SIGKILL)?;
    let connecting = tokio::spawn(Session::connect(server));
    supervisor.process.signal(Signal::SIGCONT)?;
    supervisor.wait_for("a successor", |status| status.state(2) == "active").await?;
    connecting.await??.echo(b"served").await?;
    Ok(())
}
