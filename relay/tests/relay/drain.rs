//! A drain as its clients see it, in the real process.

use crate::client::{Client, Via, quic};
use crate::process::{PATIENCE, Relay};
use crate::tap::Tap;
use moq_net::Version;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

fn version(name: &str) -> Version {
    name.parse().expect("a version")
}

/// Without a GOAWAY in its version, a client must be served as long as the others, and then be closed the same way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_without_goaway_is_served_to_its_deadline() {
    let mut relay = Relay::start(&["--auth-public", "**", "--drain-timeout", "2s"]);
    let address = relay.quic();
    let old = Client::connect(Via::Quic(address, "/"), version("moq-lite-03")).await.expect("connected");
    let new = Client::connect(Via::Quic(address, "/"), version("moq-lite-06")).await.expect("connected");
    relay.sessions(2);
    let asked = Instant::now();
    relay.signal(Signal::SIGTERM);
    assert!(new.told().await);
    assert!(!old.told().await, "it ends without having been told");
    assert!(asked.elapsed() >= Duration::from_millis(1_900), "{:?}", asked.elapsed());
    for client in [&old, &new] {
        let error = client.closed().await;
        assert!(error.to_string().contains("goaway timeout"), "{error:?}");
    }
    relay.line("deadline: 2 closed");
    assert_eq!(relay.wait().code(), Some(0));
}

/// Forced closes come spread as the GOAWAYs were, not all at the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_session_has_its_own_deadline() {
    let mut relay = Relay::start(&["--auth-public", "**", "--drain-timeout", "3s", "--drain-spread", "2s"]);
    let address = relay.quic();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::connect(Via::Quic(address, "/"), version("moq-lite-06")).await.expect("connected"));
    }
    relay.sessions(4);
    let asked = Instant::now();
    relay.signal(Signal::SIGTERM);
    let mut closes = Vec::new();
    // The youngest was told first.
    for client in clients.iter().rev() {
        client.closed().await;
        closes.push(asked.elapsed());
    }
    for (rank, close) in (0_u32..).zip(&closes) {
        let due = Duration::from_secs(1) + Duration::from_millis(500) * rank;
        assert!((due..due + Duration::from_millis(450)).contains(close), "{rank}: {close:?}, due at {due:?}");
    }
    relay.line("deadline: 4 closed");
}

/// `--drain-timeout 0` is for those who want no drain: not a GOAWAY without a deadline, which 0 means on the wire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zero_timeout_closes_at_once_without_goaway() {
    let mut relay = Relay::start(&["--auth-public", "**", "--drain-timeout", "0s"]);
    let address = relay.quic();
    for via in [Via::Quic(address, "/"), Via::WebTransport(address, "/")] {
        let client = Client::connect(via, version("moq-lite-06")).await.expect("connected");
        drop(client);
    }
    let client = Client::connect(Via::WebTransport(address, "/"), version("moq-lite-06")).await.expect("connected");
    relay.sessions(1);
    relay.signal(Signal::SIGTERM);
    assert!(!client.told().await);
    let error = client.closed().await;
    let orderly = matches!(error, moq_net::Error::Session(moq_net::SessionError::Cancel));
    assert!(orderly, "an orderly close, not {error:?}");
    assert_eq!(relay.wait().code(), Some(0));
}

/// One that arrives while the relay drains would otherwise be cut off without a word. It is told how long it has: what is
/// left by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setup_that_ends_in_a_drain_is_told_at_once_how_long_it_has() {
    const DRAIN: Duration = Duration::from_secs(300);
    let mut relay = Relay::start(&["--auth-public", "**", "--drain-timeout", "5m", "--drain-spread", "1m"]);
    let address = relay.quic();
    let mut endpoint = None;
    // The one that says the time on the wire.
    let version = version("moq-transport-18");
    let early = Client::connect(Via::Quic(address, "/"), version).await.expect("connected");
    let connection = quic(address, version.alpn(), &mut endpoint).await.expect("connected");
    relay.sessions(1);
    relay.signal(Signal::SIGTERM);
    assert!(relay.line("draining").contains("setup=1"));
    let begun = Instant::now();
    let told = tokio::time::timeout(PATIENCE, early.session.draining().recv()).await.expect("told").expect("a GOAWAY");
    let spread = Duration::from_secs(60);
    // Whoever is there at the beginning has the drain less its spread, from its own GOAWAY on.
    let expected = DRAIN - spread - Duration::from_millis(500)..=DRAIN - spread;
    assert!(told.timeout().is_some_and(|timeout| expected.contains(&timeout)), "{:?}", told.timeout());
    // For less to be left, time has to pass.
    tokio::time::sleep_until((begun + Duration::from_secs(1)).into()).await;
    let transport = web_transport_quinn::Session::raw(connection);
    let client = moq_net::Client::new().with_versions(version.into());
    let (session, driver) = client.connect(Instant::now(), transport).await.expect("set up");
    tokio::spawn(moq_net::time::run(driver));
    let told = tokio::time::timeout(PATIENCE, session.draining().recv()).await.expect("told").expect("a GOAWAY");
    let left = told.timeout().expect("a deadline");
    let least = DRAIN.saturating_sub(begun.elapsed() + Duration::from_secs(1));
    assert!((least..=DRAIN - Duration::from_secs(1)).contains(&left), "{left:?} are left, {least:?} at least");
    drop((session, early));
    relay.line("drained");
    assert_eq!(relay.wait().code(), Some(0));
}

/// A crowd whose time is up at one moment: every close gets out with its reason before the process ends, on each transport.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_closed_with_the_reason_on_every_transport() {
    const OF_EACH: usize = 60;
    const REASON: &str = "goaway timeout";
    let drain = ["--drain-timeout", "4s", "--drain-spread", "0s"];
    let mut relay = Relay::start(&[&["--auth-public", "**", "--listen-tcp-bind", "127.0.0.1:0"], &drain[..]].concat());
    let address = relay.quic();
    let tcp = relay.field("listening for tcp", "address").parse().expect("an address");
    let tapped = Tap::before(tcp).await.expect("a listener");
    let (mut over_quic, mut over_tcp) = (Vec::new(), Vec::new());
    for _ in 0..OF_EACH {
        for via in [Via::Quic(address, "/"), Via::WebTransport(address, "/")] {
            over_quic.push(Client::connect(via, version("moq-lite-06")).await.expect("connected"));
        }
        let client = Client::connect(Via::Tcp(tapped.address), version("moq-lite-06")).await;
        over_tcp.push(client.expect("connected"));
    }
    relay.sessions(3 * OF_EACH);
    relay.signal(Signal::SIGTERM);
    for client in &over_quic {
        let error = client.closed().await;
        assert!(error.to_string().contains(REASON), "{error:?}");
    }
    for client in &over_tcp {
        client.closed().await;
    }
    relay.line(&format!("deadline: {} closed", 3 * OF_EACH));
    assert_eq!(relay.wait().code(), Some(0));
    // What its clients make of it is their library's: the end of the stream.
    assert_eq!(tapped.ended_with(REASON).await, OF_EACH);
}

/// The operator reads that the spread that was asked for is not the one that is used.
#[tokio::test]
async fn a_clamped_spread_is_said_with_both_times() {
    let mut relay = Relay::start(&["--auth-public", "**", "--drain-timeout", "10s", "--drain-spread", "1m"]);
    relay.quic();
    relay.signal(Signal::SIGTERM);
    let line = relay.line("does not fit");
    assert!(line.contains("1m") && line.contains("10s") && line.contains("8s"), "{line}");
    assert_eq!(relay.wait().code(), Some(0));
}
