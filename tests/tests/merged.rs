//! A network card that merges datagrams of one sender, whichever connection and generation each is for.

use anyhow::{Context as _, ensure};
use quinn::{Connection, Endpoint, TransportConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use tests::client::{SERVER_NAME, local_for};
use tests::supervisor::{Setup, Status, Supervisor};
use tests::tls::{self, Seen};
use tests::wait::{self, PATIENCE};
use tests::{program, wire};
use tokio::task::JoinSet;

/// Connections of one socket with each of three generations.
const EACH: usize = 67;
/// Many packets of one size in a row.
const PAYLOAD: usize = 30_000;

async fn connect(endpoint: &Endpoint, server: SocketAddr, all: &mut Vec<Connection>) -> anyhow::Result<()> {
    for _ in 0..EACH {
        all.push(endpoint.connect(server, SERVER_NAME)?.await.context("a handshake")?);
    }
    Ok(())
}

/// All at once, so that packets for all of them follow each other on the wire.
async fn echo(all: &[Connection]) -> anyhow::Result<()> {
    let mut echoes = JoinSet::new();
    for connection in all {
        let connection = connection.clone();
        echoes.spawn(async move {
            let (mut send, mut recv) = connection.open_bi().await?;
            let (sent, back) = tokio::join!(
                async {
                    send.write_all(&[0x5a; PAYLOAD]).await?;
                    send.finish().context("finishing")
                },
                recv.read_to_end(PAYLOAD)
            );
            sent?;
            ensure!(back?.len() == PAYLOAD, "not everything came back");
            Ok(())
        });
    }
    while let Some(echoed) = echoes.join_next().await {
        echoed??;
    }
    Ok(())
}

fn foreign(status: &Status) -> u64 {
    status.generations.iter().map(|generation| generation.foreign).sum()
}

async fn supervisor(wire: &wire::Wire) -> anyhow::Result<(Supervisor, SocketAddr)> {
    let line = format!("exec {} \"$@\"", wire.at_the_server());
    let setup = Setup::by_shell(&line, program::echo()?)?.flags(["--probation", "0s", "--drain-timeout", "10m"]);
    let supervisor = setup.child(["[::]:0"]).serve().await?;
    let server = SocketAddr::new(wire::SERVER, supervisor.address().await?.port());
    Ok((supervisor, server))
}

/// Guards against packets that land with the neighbour of the process they are for, and are lost. And, by switching on what
/// nothing helps against (operations.md, "Network interfaces"), against a wire that does not merge at all.
#[test]
fn merged_datagrams_of_two_hundred_connections_of_one_socket_reach_their_three_generations() -> anyhow::Result<()> {
    wire::test(async |wire| {
        let (supervisor, server) = supervisor(wire).await?;
        let mut config = tls::client(&[], &Seen::default())?;
        let mut transport = TransportConfig::default();
        // The sender's own batches would end where those of the receiver could begin.
        transport.enable_segmentation_offload(false);
        config.transport_config(Arc::new(transport));
        let mut endpoint = Endpoint::client(local_for(server))?;
        endpoint.set_default_client_config(config);
        let mut all = Vec::new();
        connect(&endpoint, server, &mut all).await?;
        for generation in 2..=3 {
            echo(&all).await?;
            assert_eq!(supervisor.upgrade().await?, generation);
            connect(&endpoint, server, &mut all).await?;
        }
        for _ in 0..5 {
            echo(&all).await?;
        }
        let shared = |status: &Status| (1..=3).all(|generation| status.sessions(generation) == EACH as u64);
        let status = supervisor.wait_for("a third of the sessions with each", shared).await?;
        assert_eq!(foreign(&status), 0, "{status:?}");

        wire.merges_for_everybody().await?;
        wait::eventually(PATIENCE, "packets that went astray", async || {
            // What is lost is sent again.
            echo(&all).await?;
            Ok((foreign(&supervisor.status().await?) > 0).then_some(()))
        })
        .await
    })
}
