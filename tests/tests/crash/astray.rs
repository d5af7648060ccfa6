//! Packets that come too late, from somebody else or to somebody else end no live connection, though there is an heir who
//! answers for a dead generation.

use crate::told::kill;
use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use tests::client::echo::Session;
use tests::client::silent::Silent;
use tests::scenario::{self, HeldPath};
use tests::supervisor::{Status, Supervisor};
use tests::wait::{self, PATIENCE};
use tokio::task::JoinSet;

const FLAGS: [&str; 4] = ["--probation", "0s", "--drain-timeout", "5m"];

/// A client, the path that it takes, and whose it is.
struct Client {
    generation: u32,
    path: HeldPath,
    session: Session,
}

impl Client {
    async fn of(generation: u32, server: SocketAddr) -> anyhow::Result<Self> {
        let path = HeldPath::to(server, usize::MAX).await?;
        let session = Session::connect(path.entrance).await?;
        for _ in 0..3 {
            session.echo(b"something to be repeated").await?;
            // It takes another ID of the server's, and retires this one.
            session.rebind()?;
            session.echo(b"something else").await?;
        }
        Ok(Self { generation, path, session })
    }
}

async fn live_on(clients: &[Client], when: &str) -> anyhow::Result<()> {
    for client in clients {
        let echoed = wait::within(PATIENCE, "an echo", client.session.echo(b"still here")).await;
        echoed.and_then(|echoed| echoed).with_context(|| format!("of generation {}, {when}", client.generation))?;
    }
    Ok(())
}

/// Everything that clients of a draining generation, of the active one and of a dead one have ever sent, by IDs that are
/// retired and by first flights too, comes again, from where each of them is: to him any answer goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_packets_from_their_own_address_or_another_s_end_no_live_connection() -> anyhow::Result<()> {
    let (supervisor, _program) = scenario::serving(&FLAGS).await?;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, supervisor.address().await?.port()));
    let (mut clients, mut departed) = (Vec::new(), Vec::new());
    for generation in 1..=3 {
        clients.push(Client::of(generation, server).await?);
        clients.push(Client::of(generation, server).await?);
        let Client { path, session, .. } = Client::of(generation, server).await?;
        drop(session);
        departed.push(path);
        if generation < 3 {
            assert_eq!(supervisor.upgrade().await?, generation + 1);
        }
    }
    kill(&supervisor, 2).await?;
    supervisor.process.wait_for_line("generation 2 was ended by signal 9", PATIENCE).await?;
    let (dead, live): (Vec<_>, Vec<_>) = clients.into_iter().partition(|client| client.generation == 2);
    let told = || Ok(dead.iter().all(|client| client.session.ended().is_some()));
    wait::until(PATIENCE, "the end of the dead one's connections", told).await?;

    let paths: Vec<_> = dead.iter().chain(&live).map(|client| &client.path).chain(&departed).collect();
    let sent: Vec<_> = paths.iter().flat_map(|path| path.seen().to_server).collect();
    let ids: BTreeSet<_> =
        sent.iter().filter(|packet| packet[0] & 0x80 == 0).filter_map(|packet| packet.get(1..9)).collect();
    ensure!(ids.len() > paths.len(), "{} IDs of {} connections: none was retired", ids.len(), paths.len());
    for round in 0..4 {
        for client in &live {
            for packet in &sent {
                client.path.inject(packet).await?;
            }
        }
        live_on(&live, &format!("round {round}")).await?;
    }
    Ok(())
}

fn foreign(status: &Status) -> u64 {
    status.generations.iter().map(|generation| generation.foreign).sum()
}

/// Connections of the active generation, the heir of a dead one, and of one that drains, while the kernel gives their packets to
/// whichever process it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_that_reach_another_process_end_no_live_connection() -> anyhow::Result<()> {
    /// Of each generation; that the kernel's hash leads every one to its own or to nobody is unlikely enough.
    const EACH: usize = 20;
    let (supervisor, program) = scenario::serving(&FLAGS).await?;
    let server = supervisor.address().await?;
    let mut sessions = Vec::new();
    let connect = async |supervisor: &Supervisor, sessions: &mut Vec<Session>, generation| {
        for _ in 0..EACH {
            let session = Session::connect(server).await?;
            session.echo(b"here").await?;
            sessions.push(session);
        }
        let all = |status: &Status| status.sessions(generation) == EACH as u64;
        supervisor.wait_for("its sessions", all).await
    };
    connect(&supervisor, &mut sessions, 1).await?;
    assert_eq!(supervisor.upgrade().await?, 2);
    let of_the_second = Silent::connect(server, 1).await?;
    assert_eq!(supervisor.upgrade().await?, 3);
    connect(&supervisor, &mut sessions, 3).await?;
    kill(&supervisor, 2).await?;
    of_the_second.are_told().await?;

    let mark = supervisor.folder().join("mark");
    program.plays(&format!("quic [::]:0 1\nname echo\nhello\nadopt\ndetach\nreport {}\nhang", mark.display()))?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    wait::until(PATIENCE, "the end of the steering", || Ok(mark.exists())).await?;
    let mut echoes = JoinSet::new();
    for session in sessions {
        echoes.spawn(async move { session.echo(b"whoever gets it").await.map(|_took| session) });
    }
    supervisor.wait_for("packets that went astray", |status| foreign(status) > 0).await?;
    // The next switch steers again, and what was lost is sent again.
    program.becomes_echo()?;
    kill(&supervisor, 4).await?;
    supervisor.wait_for("its end", |status| status.state(4) == "gone").await?;
    assert_eq!(supervisor.upgrade().await?, 5);
    while let Some(echoed) = wait::within(2 * PATIENCE, "an echo", echoes.join_next()).await? {
        let session = echoed?.with_context(|| supervisor.process.tail())?;
        session.echo(b"still here").await?;
    }
    Ok(())
}
