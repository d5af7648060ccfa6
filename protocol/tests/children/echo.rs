//! `examples/echo.rs`, and with it `protocol::quinn::Server` in a real process.

use crate::supervisor::{Grant, PATIENCE, Supervised, example, in_time};
use protocol::channel::read_memfd;
use protocol::message::{Adopted, FromChild, Kind, ToChild};
use quinn::{Connection, ConnectionError, Endpoint};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The echo server past `ready`, its address, and its certificate and key.
async fn start(generation: u32, kept: Option<Vec<u8>>) -> (Supervised, SocketAddr, Vec<u8>) {
    let child = Supervised::start(&example("echo"), &["127.0.0.1:0"]);
    let hello = child.hello().await;
    assert_eq!((&*hello.listeners[0].address, hello.listeners[0].kind), ("127.0.0.1:0", Kind::Quic));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let adopted = Adopted { name: "echo".into(), kind: Kind::Quic, address: address.to_string(), members: vec![7] };
    child.adopt(Grant {
        generation,
        kept: kept.iter().map(|identity| ("identity".to_owned(), identity.clone())).collect(),
        listeners: vec![(adopted, vec![socket.into()])],
        drain_timeout: Duration::from_millis(300),
    });
    let identity = match kept {
        Some(identity) => identity,
        None => {
            let (FromChild::Keep { .. }, fds) = child.expect().await else { panic!("no keep") };
            read_memfd(fds[0].as_fd(), 100_000).unwrap().to_vec()
        }
    };
    assert_eq!(child.expect().await.0, FromChild::Ready);
    (child, address, identity)
}

fn client(identity: &[u8]) -> Endpoint {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(identity).unwrap()).unwrap();
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap());
    endpoint
}

async fn connect(endpoint: &Endpoint, address: SocketAddr) -> Connection {
    in_time("a handshake", endpoint.connect(address, "localhost").unwrap()).await.unwrap()
}

async fn echoes(connection: &Connection) {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(b"hello").await.unwrap();
    send.finish().unwrap();
    assert_eq!(in_time("the echo", recv.read_to_end(100)).await.unwrap(), b"hello");
}

#[tokio::test]
async fn it_serves_its_sessions_from_activate_to_the_end_of_a_drain() {
    let (mut child, address, identity) = start(1, None).await;
    let endpoint = client(&identity);
    child.role(&ToChild::Activate { seq: 1 }, 1).await;
    let connection = connect(&endpoint, address).await;
    echoes(&connection).await;
    let stats = child.stats("one session", |stats| stats.sessions == 1).await;
    assert_eq!((stats.handshakes, stats.foreign), (1, 0));

    child.role(&ToChild::Standby { seq: 2 }, 2).await;
    echoes(&connection).await;
    // One whose first packet was under way at the switch.
    let late = connect(&endpoint, address).await;
    echoes(&late).await;
    let timeout_ms = u64::try_from(PATIENCE.as_millis()).unwrap();
    child.role(&ToChild::Drain { seq: 3, timeout_ms, spread_ms: None }, 3).await;
    echoes(&connection).await;
    connection.close(0_u32.into(), b"");
    late.close(0_u32.into(), b"");
    child.stats("the last counters", |stats| stats.sessions == 0 && stats.forced == 0).await;
    assert!(child.exit().await.success());
}

#[tokio::test]
async fn it_closes_what_is_left_at_the_deadline() {
    let (mut child, address, identity) = start(1, None).await;
    let endpoint = client(&identity);
    let connection = connect(&endpoint, address).await;
    child.role(&ToChild::Drain { seq: 1, timeout_ms: 100, spread_ms: None }, 1).await;
    let reason = in_time("the close", connection.closed()).await;
    assert!(
        matches!(&reason, ConnectionError::ApplicationClosed(close) if &close.reason[..] == b"drained"),
        "{reason}"
    );
    child.stats("the last counters", |stats| stats.forced == 1).await;
    assert!(child.exit().await.success());
}

#[tokio::test]
async fn an_undrained_server_accepts_and_stays() {
    let (mut child, address, identity) = start(1, None).await;
    let endpoint = client(&identity);
    let connection = connect(&endpoint, address).await;
    child.role(&ToChild::Drain { seq: 1, timeout_ms: 60_000, spread_ms: None }, 1).await;
    child.role(&ToChild::Undrain { seq: 2 }, 2).await;
    connection.close(0_u32.into(), b"");
    child.stats("no session", |stats| stats.sessions == 0).await;
    echoes(&connect(&endpoint, address).await).await;
    child.role(&ToChild::Drain { seq: 3, timeout_ms: 0, spread_ms: None }, 3).await;
    assert!(child.exit().await.success());
}

/// Its client pins the certificate, so a second generation with another one would be unreachable.
#[tokio::test]
async fn a_later_generation_has_the_same_certificate() {
    let (_first, _, identity) = start(1, None).await;
    let (_second, address, _) = start(2, Some(identity.clone())).await;
    echoes(&connect(&client(&identity), address).await).await;
}

#[tokio::test]
async fn it_drains_and_ends_when_the_supervisor_is_gone() {
    let (child, address, identity) = start(1, None).await;
    let connection = connect(&client(&identity), address).await;
    echoes(&connection).await;
    let mut process = child.leave();
    in_time("the close", connection.closed()).await;
    assert!(in_time("the end", process.wait()).await.unwrap().success());
}

/// What `from_env` says when the environment is wrong: one line that names the culprit, and nothing served.
#[test]
fn a_wrong_environment_is_one_clear_line() {
    for (value, expected) in [
        (None, "only runs under moq-supervise"),
        (Some("seven"), "MOQ_SUPERVISE_FD=\"seven\""),
        (Some("-1"), "MOQ_SUPERVISE_FD=\"-1\""),
        (Some("987"), "descriptor 987"),
        (Some("0"), "descriptor 0 as the channel: it is not a unix SOCK_SEQPACKET socket"),
    ] {
        let mut command = Command::new(example("echo"));
        command.stdin(Stdio::null()).env_remove(protocol::child::FD_VARIABLE);
        if let Some(value) = value {
            command.env(protocol::child::FD_VARIABLE, value);
        }
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(error.contains(expected), "{value:?}: {error}");
    }
}
