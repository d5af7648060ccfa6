//! Real sockets on loopback; the dead are ledgers that the tests write.

use super::*;
use crate::cid::{CID_LEN, ConnectionId};
use crate::keys::{BootId, ChildKeys, Secret};
use crate::ledger::{Ledger, Reader, Writer, create};
use crate::message::{Generation, Route};
use crate::quinn::MemberEndpoint;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

const DEAD: u32 = 2;
const HEIR: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(10);

fn keys(generation: u32) -> ChildKeys {
    Secret::from_bytes([1; 32]).child_keys(&BootId::from_bytes([2; 16]), Generation(generation))
}

fn id(generation: u32, member: u16, counter: u64) -> [u8; CID_LEN] {
    let tag = Tag::new(Generation(generation), MemberId::new(member).unwrap()).unwrap();
    Cipher::new(&keys(1).cid).seal(ConnectionId::new(tag, counter).unwrap())
}

/// The ledger of a generation with two members, and the writer of the second.
fn ledger() -> (OwnedFd, Writer) {
    let file = create(2).unwrap();
    let ledger = Arc::new(Ledger::open(file.try_clone().unwrap(), Duration::from_secs(60)).unwrap());
    let writer = ledger.writer(MemberId::new(1).unwrap()).unwrap();
    (file, writer)
}

/// The dead generation's members are reached from the heir's member 4.
fn estate(file: OwnedFd) -> Estate {
    let routes = vec![Route { first: 0, members: 2, via: 4, via_members: 1 }];
    let key = keys(DEAD).reset.clone();
    Estate { generation: Generation(DEAD), key, ledger: Some(Reader::open(file)), routes }
}

fn heir(address: &str) -> (Endpoints, MemberEndpoint, SocketAddr) {
    let endpoints = Endpoints::with_keys(Generation(HEIR), Arc::new(keys(HEIR)), false);
    let socket = UdpSocket::bind(address).unwrap();
    let address = socket.local_addr().unwrap();
    let member = crate::child::Member { id: MemberId::new(4).unwrap(), socket };
    let open = endpoints.open(member, None).unwrap();
    (endpoints, open, address)
}

async fn client() -> (tokio::net::UdpSocket, SocketAddr) {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

async fn receive(client: &tokio::net::UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut packet = [0; 2_000];
    let (length, from) = tokio::time::timeout(PATIENCE, client.recv_from(&mut packet)).await.unwrap().unwrap();
    (packet[..length].to_vec(), from)
}

fn is_reset(packet: &[u8], id: [u8; CID_LEN], generation: u32) -> bool {
    packet.ends_with(&token(&keys(generation).reset, id))
}

#[tokio::test]
async fn a_client_is_told_once_from_where_it_expects_it_with_the_token_of_its_last_id() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let ((client, there), (file, mut writer)) = (client().await, ledger());
        // As a dual-stack socket sees an IPv4 client.
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), there.port()));
        let seen = if address.starts_with('[') { mapped } else { there };
        let now = std::time::Instant::now();
        writer.saw(now, 7, id(DEAD, 1, 7), seen, Some(Ipv4Addr::new(127, 0, 0, 9).into()));
        let (endpoints, _open, bound) = heir(address);
        let told = endpoints.inherit(vec![estate(file.try_clone().unwrap())]).await;
        assert_eq!(told, Told { sent: 1, ..Told::default() });
        let (packet, from) = receive(&client).await;
        assert_eq!((packet.len(), packet[0] & 0xc0), (RESET_LEN, 0x40));
        assert!(is_reset(&packet, id(DEAD, 1, 7), DEAD));
        assert_eq!(from, SocketAddr::from(([127, 0, 0, 9], bound.port())));
        let again = endpoints.inherit(vec![estate(file)]).await;
        assert_eq!(again, Told::default(), "a second message about the same generation tells nobody twice");
    }
}

/// A hostile relay can write what it likes into its ledger: that must not make its heir say any other token.
#[tokio::test]
async fn forged_entries_are_told_nothing() {
    let ((client, there), (file, mut writer)) = (client().await, ledger());
    let (endpoints, _open, _) = heir("127.0.0.1:0");
    let forged = [
        // A live generation's, the heir's own among them.
        id(HEIR, 4, 0),
        id(HEIR + 1, 1, 0),
        id(1, 1, 0),
        // Its own, of another member.
        id(DEAD, 0, 0),
        [0; CID_LEN],
    ];
    let now = std::time::Instant::now();
    for (counter, id) in (0..).zip(forged) {
        writer.saw(now, counter, id, there, None);
    }
    // Nobody's address.
    for (counter, address) in
        (100..).zip(["0.0.0.0:5", "224.0.0.1:5", "255.255.255.255:5", "127.0.0.1:0", "[ff02::1]:5"])
    {
        writer.saw(now, counter, id(DEAD, 1, counter), address.parse().unwrap(), None);
    }
    // One that the heir's socket can't reach, and an honest one.
    writer.saw(now, 200, id(DEAD, 1, 200), SocketAddr::from((Ipv6Addr::LOCALHOST, 9)), None);
    writer.saw(now, 201, id(DEAD, 1, 201), there, None);
    let told = endpoints.inherit(vec![estate(file)]).await;
    assert_eq!(told, Told { sent: 1, skipped: 6, unreadable: 0 });
    assert!(is_reset(&receive(&client).await.0, id(DEAD, 1, 201), DEAD));
}

/// The dead one's host had an address that ours has lost: the kernel refuses to send from it (EINVAL), as it refuses segmentation
/// offload elsewhere, and quinn would never use that again.
#[tokio::test]
async fn a_local_address_that_is_not_ours_costs_the_endpoint_nothing() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let ((client, there), (file, mut writer)) = (client().await, ledger());
        let (endpoints, open, _) = heir(address);
        let segments = || endpoints.socket(open.id).unwrap().max_transmit_segments();
        let before = segments();
        assert!(before > 1, "this kernel has segmentation offload");
        let now = std::time::Instant::now();
        writer.saw(now, 1, id(DEAD, 1, 1), there, Some(Ipv4Addr::new(192, 0, 2, 7).into()));
        writer.saw(now, 2, id(DEAD, 1, 2), there, Some(Ipv4Addr::LOCALHOST.into()));
        let told = endpoints.inherit(vec![estate(file)]).await;
        assert_eq!(told, Told { sent: 1, skipped: 1, unreadable: 0 });
        assert!(is_reset(&receive(&client).await.0, id(DEAD, 1, 2), DEAD));
        assert_eq!(segments(), before);
    }
}

#[tokio::test]
async fn who_has_no_socket_where_the_dead_listened_tells_nobody() {
    let ((_client, there), (file, mut writer)) = (client().await, ledger());
    writer.saw(std::time::Instant::now(), 7, id(DEAD, 1, 7), there, None);
    let (endpoints, _open, _) = heir("127.0.0.1:0");
    let estate = Estate { routes: vec![Route { first: 0, members: 1, via: 4, via_members: 1 }], ..estate(file) };
    assert_eq!(endpoints.inherit(vec![estate]).await, Told { skipped: 1, ..Told::default() });
    assert!(endpoints.heirs().contains(Generation(DEAD)), "their next packets are answered all the same");
}

#[tokio::test]
async fn a_generation_is_not_its_own_heir() {
    let (endpoints, _open, _) = heir("127.0.0.1:0");
    let own = Estate { generation: Generation(HEIR), ..estate(ledger().0) };
    assert_eq!(endpoints.inherit(vec![own]).await, Told::default());
    assert!(!endpoints.heirs().contains(Generation(HEIR)));
}

#[tokio::test]
async fn a_ledger_that_is_none_is_said() {
    let (endpoints, _open, _) = heir("127.0.0.1:0");
    let nothing = crate::channel::sealed_memfd("x", b"").unwrap();
    let told = endpoints.inherit(vec![estate(nothing)]).await;
    assert_eq!(told, Told { unreadable: 1, ..Told::default() });
}

/// Within seconds, and not all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_clients_are_told_at_the_pace_that_is_set() {
    const CLIENTS: u64 = 10_000;
    let ((client, there), (file, mut writer)) = (client().await, ledger());
    let now = std::time::Instant::now();
    for counter in 0..CLIENTS {
        writer.saw(now, counter, id(DEAD, 1, counter), there, None);
    }
    let (endpoints, _open, _) = heir("127.0.0.1:0");
    let reader = tokio::spawn(async move {
        let mut tokens = BTreeSet::new();
        while u64::try_from(tokens.len()).unwrap() < CLIENTS * 9 / 10 {
            let (packet, _) = receive(&client).await;
            assert!(tokens.insert(packet[RESET_LEN - TOKEN_LEN..].to_vec()), "one was told twice");
        }
    });
    let begun = Instant::now();
    let told = endpoints.inherit(vec![estate(file)]).await;
    assert_eq!(told, Told { sent: CLIENTS, ..Told::default() });
    assert!(begun.elapsed() >= INTERVAL * 9_900, "{:?} is too fast", begun.elapsed());
    reader.await.unwrap();
}
