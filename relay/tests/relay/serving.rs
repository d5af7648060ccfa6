//! Media, over each transport and version, and what operators ask a relay for.

use crate::client::{Client, Via};
use crate::process::{PATIENCE, Relay};
use moq_net::{Timestamp, Version, Versions, origin::Route};
use nix::sys::signal::Signal;
use std::net::SocketAddr;
use tokio::time::timeout;

/// Publishes one frame at one client and reads it at another.
async fn pass_a_frame(from: &Client, to: &Client) {
    let broadcast = from.origin.create_broadcast("live").expect("a broadcast");
    let mut track = broadcast.create_track("frames", None).expect("a track");
    broadcast.announce(Route::default()).expect("announced");
    let frame = timeout(PATIENCE, async {
        let consumer = to.origin.consume();
        let broadcast = consumer.routed_broadcast("live").await.expect("announced to the other");
        let mut frames = broadcast.track("frames").expect("a track").subscribe(None).await.expect("subscribed");
        track.write_frame(Timestamp::now(), &b"frame"[..]).expect("written");
        let mut group = frames.recv_group().await.expect("open").expect("a group");
        group.read_frame().await.expect("open").expect("a frame")
    });
    assert_eq!(&frame.await.expect("in time").payload[..], b"frame");
}

/// A version that only one transport speaks would split publishers from their viewers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_is_served_on_quic_and_on_webtransport() {
    let mut relay = Relay::start(&["--auth-public", "**"]);
    let address = relay.quic();
    for version in Versions::all().iter().copied() {
        for (from, to) in [
            (Via::Quic(address, "/"), Via::WebTransport(address, "/")),
            (Via::WebTransport(address, "/"), Via::Quic(address, "/")),
        ] {
            println!("{version}: {from:?} to {to:?}");
            let from = Client::connect(from, version).await.expect("connected");
            let to = Client::connect(to, version).await.expect("connected");
            assert_eq!((from.session.version(), to.session.version()), (version, version));
            pass_a_frame(&from, &to).await;
        }
    }
}

/// The stream listeners are part of the same node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_and_unix_sessions_share_the_origin_with_quic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("relay.sock");
    let unix = path.to_str().expect("UTF-8");
    let mut relay =
        Relay::start(&["--auth-public", "**", "--listen-tcp-bind", "127.0.0.1:0", "--listen-unix-bind", unix]);
    let address = relay.quic();
    let tcp: SocketAddr = relay.field("listening for tcp", "address").parse().expect("an address");
    relay.line("listening for unix");
    for version in ["moq-lite-06", "moq-transport-22"].map(|name| name.parse::<Version>().expect("a version")) {
        let over_quic = Client::connect(Via::Quic(address, "/"), version).await.expect("connected");
        let over_tcp = Client::connect(Via::Tcp(tcp), version).await.expect("connected");
        let over_unix = Client::connect(Via::Unix(&path), version).await.expect("connected");
        pass_a_frame(&over_tcp, &over_unix).await;
        drop(over_tcp);
        let again = Client::connect(Via::Tcp(tcp), version).await.expect("connected");
        pass_a_frame(&over_quic, &again).await;
    }
    relay.signal(Signal::SIGTERM);
    relay.line("drained");
    assert_eq!(relay.wait().code(), Some(0));
    assert!(!path.exists(), "its socket file goes with it");
}

/// What operators look at when they ask a relay how it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigusr1_logs_a_snapshot() {
    let mut relay = Relay::start(&["--auth-public", "**"]);
    let address = relay.quic();
    let version: Version = "moq-lite-06".parse().expect("a version");
    let _client = Client::connect(Via::Quic(address, "/"), version).await.expect("connected");
    relay.sessions(1);
    assert!(relay.line("snapshot role").contains("\"active\""));
    relay.line("snapshot of a worker member=0");
    relay.line("snapshot of a worker member=1");
}
