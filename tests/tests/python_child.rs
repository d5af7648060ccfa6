//! The protocol is for any language: a TCP server in Python, on its standard library alone.

use anyhow::Context as _;
use std::net::SocketAddr;
use std::time::Duration;
use tests::program;
use tests::supervisor::Setup;
use tests::wait::{self, PATIENCE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Sends a line and reads it back.
async fn echo(stream: &mut TcpStream, text: &[u8]) -> anyhow::Result<()> {
    stream.write_all(text).await?;
    let mut back = vec![0; text.len()];
    wait::within(PATIENCE, "an echo", stream.read_exact(&mut back)).await??;
    anyhow::ensure!(back == text, "something else came back");
    Ok(())
}

/// New connections one after the other, until told to stop; returns how many there were.
async fn connect_again_and_again(server: SocketAddr, stop: watch::Receiver<bool>) -> anyhow::Result<u64> {
    let mut count = 0;
    while !*stop.borrow() {
        let mut stream = TcpStream::connect(server).await.with_context(|| format!("connection {count}"))?;
        echo(&mut stream, b"hello").await.with_context(|| format!("connection {count}"))?;
        count += 1;
    }
    Ok(count)
}

/// Guards the promise for stream listeners: one socket for all generations, so that none is ever refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tcp_server_in_python_refuses_no_connection_during_upgrades() -> anyhow::Result<()> {
    let flags = ["--probation", "200ms", "--drain-timeout", "5m"];
    let supervisor = Setup::new(program::python_child()?)?.flags(flags).child(["[::]:0"]).serve().await?;
    let server = supervisor.address().await?;
    let mut old = TcpStream::connect(server).await?;
    echo(&mut old, b"before the upgrades").await?;
    let (stop, stopped) = watch::channel(false);
    let load = tokio::spawn(connect_again_and_again(server, stopped));
    for generation in 2..=4 {
        assert_eq!(supervisor.upgrade().await?, generation);
    }
    stop.send(true)?;
    let connections = load.await??;
    assert!(connections > 10, "{connections}");

    // The connection of the first generation is still that one's, and ends when it wants to.
    echo(&mut old, b"after the upgrades").await?;
    supervisor.wait_for("its session", |status| status.state(1) == "draining" && status.sessions(1) == 1).await?;
    drop(old);
    supervisor.wait_for("the active one alone", |status| status.generations.len() == 1).await?;
    Ok(())
}

/// The drain deadline holds for a child in Python too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tcp_server_in_python_closes_what_stays_beyond_the_deadline() -> anyhow::Result<()> {
    let flags = ["--probation", "0s", "--drain-timeout", "1s"];
    let supervisor = Setup::new(program::python_child()?)?.flags(flags).child(["127.0.0.1:0"]).serve().await?;
    let mut stays = TcpStream::connect(supervisor.address().await?).await?;
    echo(&mut stays, b"I stay").await?;
    supervisor.upgrade().await?;
    let begin = std::time::Instant::now();
    let end = wait::within(PATIENCE, "the end of the connection", stays.read(&mut [0; 16])).await?;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    assert!(begin.elapsed() >= Duration::from_millis(800), "{:?}", begin.elapsed());
    supervisor.wait_for("the active one alone", |status| status.generations.len() == 1).await?;
    Ok(())
}
