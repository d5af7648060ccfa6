//! `examples/child.py`: another language, nothing but its standard library.

use crate::supervisor::{Grant, PATIENCE, Supervised, in_time};
use protocol::channel::read_memfd;
use protocol::message::{Adopted, FromChild, Kind, ToChild};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn start() -> Supervised {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/child.py");
    Supervised::start(&program, &["127.0.0.1:7"])
}

/// Adopts it with a listener; returns the address and the secret that it keeps.
async fn adopt(child: &Supervised, kept: Option<Vec<u8>>) -> (SocketAddr, Option<Vec<u8>>) {
    let hello = child.hello().await;
    assert_eq!((&*hello.listeners[0].address, hello.listeners[0].kind), ("127.0.0.1:7", Kind::Tcp));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let adopted = Adopted { name: "echo".into(), kind: Kind::Tcp, address: address.to_string(), members: vec![0] };
    let fresh = kept.is_none();
    child.adopt(Grant {
        generation: 1,
        kept: kept.into_iter().map(|secret| ("identity".to_owned(), secret)).collect(),
        listeners: vec![(adopted, vec![listener.into()])],
        drain_timeout: Duration::from_millis(300),
    });
    let mut kept = None;
    if fresh {
        let (FromChild::Keep { name }, fds) = child.expect().await else { panic!("no keep") };
        assert_eq!(name, "identity");
        kept = Some(read_memfd(fds[0].as_fd(), 100).unwrap().to_vec());
    }
    assert_eq!(child.expect().await.0, FromChild::Ready);
    (address, kept)
}

async fn echoes(client: &mut TcpStream) {
    client.write_all(b"hello").await.unwrap();
    let mut answer = [0; 5];
    in_time("the echo", client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"hello");
}

#[tokio::test]
async fn it_serves_its_sessions_from_activate_to_the_end_of_a_drain() {
    let mut child = start();
    let (address, _) = adopt(&child, None).await;
    child.role(&ToChild::Activate { seq: 1 }, 1).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    echoes(&mut client).await;
    child.stats("one session", |stats| stats.sessions == 1 && stats.handshakes == 1).await;

    child.role(&ToChild::Standby { seq: 2 }, 2).await;
    echoes(&mut client).await;
    let timeout_ms = u64::try_from(PATIENCE.as_millis()).unwrap();
    child.role(&ToChild::Drain { seq: 3, timeout_ms, spread_ms: None }, 3).await;
    echoes(&mut client).await;
    drop(client);
    child.stats("the last counters", |stats| stats.sessions == 0 && stats.forced == 0).await;
    assert!(child.exit().await.success());
}

#[tokio::test]
async fn it_closes_what_is_left_at_the_deadline() {
    let mut child = start();
    let (address, _) = adopt(&child, None).await;
    child.role(&ToChild::Canary { seq: 1, permille: 10 }, 1).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    echoes(&mut client).await;
    child.role(&ToChild::Drain { seq: 2, timeout_ms: 100, spread_ms: None }, 2).await;
    assert_eq!(in_time("the close", client.read(&mut [0])).await.unwrap(), 0);
    child.stats("the last counters", |stats| stats.forced == 1).await;
    assert!(child.exit().await.success());
}

#[tokio::test]
async fn it_gets_back_what_an_earlier_one_kept() {
    let first = start();
    let (_, kept) = adopt(&first, None).await;
    let hex: String = kept.as_ref().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let second = start();
    adopt(&second, kept).await;
    second.stats("its identity", |stats| stats.traffic["identity"] == *hex).await;
}

#[tokio::test]
async fn it_answers_what_it_does_not_know_and_serves_on() {
    let child = start();
    adopt(&child, None).await;
    child.send_raw(br#"{"type":"dance","seq_":1}"#);
    child.send(&ToChild::Unsupported { message: "stats".into() });
    child.send(&ToChild::Reload);
    assert_eq!(child.expect().await.0, FromChild::Unsupported { message: "dance".into() });
    child.role(&ToChild::Activate { seq: 1 }, 1).await;
}

#[tokio::test]
async fn it_drains_and_ends_when_the_supervisor_is_gone() {
    let child = start();
    let (address, _) = adopt(&child, None).await;
    child.role(&ToChild::Activate { seq: 1 }, 1).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    echoes(&mut client).await;
    let mut process = child.leave();
    assert_eq!(in_time("the close", client.read(&mut [0])).await.unwrap(), 0);
    assert!(in_time("the end", process.wait()).await.unwrap().success());
}

#[tokio::test]
async fn a_refusal_ends_it_with_a_failure() {
    let mut child = start();
    child.hello().await;
    child.send(&ToChild::Refused { error: "no".into() });
    assert_eq!(child.exit().await.code(), Some(1));
}
