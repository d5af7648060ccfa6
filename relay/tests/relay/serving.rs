//! Media, over each transport and version, and the end of a relay that can't serve any more.

use crate::client::{Client, Via};
use crate::process::{PATIENCE, Relay};
use moq_net::{Timestamp, Version, Versions, origin::Route};
use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
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

/// A relay with one deaf socket would look alive while a part of the clients gets no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_ends_the_process() {
    let mut relay = Relay::start(&["--auth-public", "**"]);
    let socket = its_udp_socket(relay.pid(), relay.quic());
    // See the unit test of the workers: an error that an endpoint does not survive.
    let nobody = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("bound");
    socket.connect(nobody).expect("connected");
    drop(socket.send(b"x"));
    let somebody = UdpSocket::bind(nobody).expect("the same port");
    somebody.send_to(b"x", relay.quic()).expect("sent");
    assert_eq!(relay.wait().code(), Some(1));
    assert!(relay.line("moq-relay: the worker of member").contains("endpoint"));
}

/// A duplicate of one of the UDP sockets of another process.
fn its_udp_socket(pid: u32, address: SocketAddr) -> UdpSocket {
    let process = Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("not 0");
    let pidfd = pidfd_open(process, PidfdFlags::empty()).expect("it runs");
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("ours");
    let numbers = fds.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut sockets = numbers.filter_map(|fd| {
        let fd: OwnedFd = pidfd_getfd(&pidfd, fd, PidfdGetfdFlags::empty()).ok()?;
        let socket = socket2::Socket::from(fd);
        let is_udp = socket.r#type().ok()? == socket2::Type::DGRAM;
        let same = socket.local_addr().ok()?.as_socket()? == address;
        (is_udp && same).then(|| UdpSocket::from(socket))
    });
    sockets.next().expect("it has one")
}

/// What operators look at when they ask a relay how it is.
#[tokio::test]
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
