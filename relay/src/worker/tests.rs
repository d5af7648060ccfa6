//! What becomes of all workers when something happens to one.

use super::{Death, Shared, Workers};
use crate::node::Node;
use protocol::child::Member;
use protocol::cid::MemberId;
use protocol::keys::{BootId, Secret};
use protocol::message::Generation;
use protocol::quinn::Endpoints;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

fn member(number: u16) -> Member {
    let id = MemberId::new(number).expect("a member number");
    Member { id, socket: UdpSocket::bind("127.0.0.1:0").expect("a socket") }
}

fn shared() -> Shared {
    crate::tls::install_provider();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = quinn::ServerConfig::with_single_cert(vec![made.cert.der().clone()], key.into()).expect("usable");
    let keys = Secret::from_bytes([7; 32]).child_keys(&BootId::from_bytes([7; 16]), Generation(1));
    Shared { node: Node::idle(), endpoints: Endpoints::with_keys(Generation(1), Arc::new(keys), true), server }
}

/// A stop must not leave a thread that holds a socket and accepts on it.
#[tokio::test]
async fn a_stop_ends_every_worker() {
    let workers = Workers::start((0..3).map(member).collect(), true, &shared()).await.expect("started");
    assert_eq!(workers.each().len(), 3);
    timeout(PATIENCE, workers.stop()).await.expect("all threads end");
}

/// Half of the workers would serve, and the clients of the others wait.
#[tokio::test]
async fn one_worker_that_can_not_start_is_enough_to_fail() {
    let mut shared = shared();
    // A generation that fits into no connection ID: its endpoints can't be made.
    let keys = Secret::from_bytes([7; 32]).child_keys(&BootId::from_bytes([7; 16]), Generation(1));
    shared.endpoints = Endpoints::with_keys(Generation(0), Arc::new(keys), true);
    let failed = Workers::start(vec![member(0), member(1)], false, &shared).await;
    assert!(matches!(failed.map_err(|ended| ended.result), Err(Err(Death::Start(_)))));
}
