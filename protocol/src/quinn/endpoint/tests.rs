//! Real endpoints on loopback.

use super::*;
use crate::cid::ConnectionId;
use crate::keys::{BootId, Secret};
use hmac::{Hmac, KeyInit as _, Mac as _};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::RcvBuf;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Incoming};
use std::net::{SocketAddr, UdpSocket};

fn keys(generation: u32) -> ChildKeys {
    Secret::from_bytes([1; 32]).child_keys(&BootId::from_bytes([2; 16]), Generation(generation))
}

fn endpoints(generation: u32, gro: bool) -> Endpoints {
    Endpoints::with_keys(Generation(generation), Arc::new(keys(generation)), gro)
}

fn member(number: u16) -> (Member, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    (Member { id: MemberId::new(number).unwrap(), socket }, address)
}

fn server_and_client() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = CertificateDer::from(made.cert);
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::with_single_cert(vec![certificate], key.into()).unwrap();
    (server, ClientConfig::with_root_certificates(Arc::new(roots)).unwrap())
}

/// A packet for a connection that nobody knows.
fn orphan(generation: u32, member: u16, counter: u64) -> [u8; 60] {
    let tag = Tag::new(Generation(generation), MemberId::new(member).unwrap()).unwrap();
    let mut packet = [0x40; 60];
    packet[1..9].copy_from_slice(&Cipher::new(&keys(1).cid).seal(ConnectionId::new(tag, counter).unwrap()));
    packet
}

/// The last 16 bytes of the answer to that packet, if it is the stateless reset of that generation.
fn is_reset(answer: &[u8], packet: &[u8], generation: u32) -> bool {
    let mut mac = <Hmac<sha2::Sha256>>::new_from_slice(keys(generation).reset.as_bytes()).unwrap();
    mac.update(&packet[1..9]);
    answer.ends_with(&mac.finalize().into_bytes()[..16])
}

async fn client_of(address: SocketAddr) -> tokio::net::UdpSocket {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(address).await.unwrap();
    socket
}

async fn answer(client: &tokio::net::UdpSocket) -> Vec<u8> {
    let mut answer = [0; 2_000];
    let length = in_time(client.recv(&mut answer)).await.unwrap();
    answer[..length].to_vec()
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("in time")
}

#[tokio::test]
async fn a_client_connects_and_nothing_is_foreign() {
    let (server, client) = server_and_client();
    let (member, address) = member(4);
    let server = endpoints(1, false).open(member, Some(server)).unwrap();
    let dialer = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let (accepted, connected) = in_time(async {
        tokio::join!(
            async { server.endpoint.accept().await.unwrap().await },
            dialer.connect_with(client, address, "localhost").unwrap()
        )
    })
    .await;
    accepted.unwrap();
    let connection = connected.unwrap();
    connection.open_uni().await.unwrap().write_all(b"hello").await.unwrap();
    assert!(server.counters.received() > 0);
    assert_eq!(server.counters.foreign(), 0);
}

#[tokio::test]
async fn gro_is_cleared_unless_wanted() {
    for gro in [false, true] {
        let (member, _) = member(4);
        let handle = member.socket.try_clone().unwrap();
        let _server = endpoints(1, gro).open(member, None).unwrap();
        assert_eq!(getsockopt(&handle, UdpGroSegment).unwrap(), gro);
    }
}

/// The foreign packet goes first, so that the answer to the other proves that it was left unanswered.
#[tokio::test]
async fn a_foreign_packet_is_counted_and_not_answered() {
    let (config, _) = server_and_client();
    let (member, address) = member(4);
    let endpoints = endpoints(3, false);
    let server = endpoints.open(member, Some(config)).unwrap();
    endpoints.heirs().extend([(Generation(1), keys(1).reset.clone())]);
    let client = client_of(address).await;
    client.send(&orphan(3, 5, 0)).await.unwrap();
    client.send(&orphan(2, 4, 0)).await.unwrap();
    client.send(&orphan(1, 4, 0)).await.unwrap();
    assert!(is_reset(&answer(&client).await, &orphan(1, 4, 0), 1));
    assert_eq!((server.counters.received(), server.counters.foreign()), (3, 2));
    // The word that it is the heir of one of them had not come yet.
    endpoints.heirs().extend([(Generation(2), keys(2).reset.clone())]);
    assert_eq!((server.counters.received(), server.counters.foreign()), (3, 1));
}

#[tokio::test]
async fn an_heir_resets_the_connections_of_the_dead_with_their_key() {
    let (config, _) = server_and_client();
    let (member, address) = member(4);
    let endpoints = endpoints(3, false);
    let _server = endpoints.open(member, Some(config)).unwrap();
    let client = client_of(address).await;
    endpoints.heirs().extend([(Generation(2), keys(2).reset.clone())]);
    client.send(&orphan(2, 7, 9)).await.unwrap();
    assert!(is_reset(&answer(&client).await, &orphan(2, 7, 9), 2));
}

/// The endpoint of an heir to generation 2 whose socket holds a burst, and a client that does not wait.
fn heir_and_client() -> (MemberEndpoint, UdpSocket) {
    let (config, _) = server_and_client();
    let (member, address) = member(4);
    let endpoints = endpoints(3, false);
    setsockopt(&member.socket, RcvBuf, &(4 << 20)).unwrap();
    let server = endpoints.open(member, Some(config)).unwrap();
    endpoints.heirs().extend([(Generation(2), keys(2).reset.clone())]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(address).unwrap();
    client.set_nonblocking(true).unwrap();
    setsockopt(&client, RcvBuf, &(4 << 20)).unwrap();
    (server, client)
}

/// What has come by now.
fn answers(client: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2_000];
    std::iter::from_fn(|| client.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec())).collect()
}

/// As quinn reads the clock once for many packets, any interval of its own would leave most of a burst unanswered: with its
/// default of 20 ms this takes 200 s. Who is not answered sends again, as clients do.
#[tokio::test]
async fn ten_thousand_orphans_are_answered_within_seconds() {
    const ORPHANS: u64 = 10_000;
    let (_server, client) = heir_and_client();
    let token = |counter| {
        let mut mac = <Hmac<sha2::Sha256>>::new_from_slice(keys(2).reset.as_bytes()).unwrap();
        mac.update(&orphan(2, 4, counter)[1..9]);
        mac.finalize().into_bytes()[..16].to_vec()
    };
    let mut waiting: HashMap<Vec<u8>, u64> = (0..ORPHANS).map(|counter| (token(counter), counter)).collect();
    let packets: Vec<_> = (0..ORPHANS).map(|counter| orphan(2, 4, counter)).collect();
    in_time(async {
        while !waiting.is_empty() {
            for counter in waiting.values().take(500) {
                client.send(&packets[usize::try_from(*counter).unwrap()]).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            for answer in answers(&client) {
                assert!(answer.len() < 60, "a reset is shorter than what caused it");
                waiting.remove(&answer[answer.len() - 16..]);
            }
        }
    })
    .await;
}

/// All lie in the socket before the endpoint looks.
#[tokio::test]
async fn a_flood_of_orphans_gets_no_more_answers_than_the_budget_has() {
    const ORPHANS: u64 = 4_000;
    let (server, client) = heir_and_client();
    for counter in 0..ORPHANS {
        client.send(&orphan(2, 4, counter)).unwrap();
    }
    let begun = std::time::Instant::now();
    in_time(async {
        while server.counters.received() < ORPHANS {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // A thousand at once, then 20 000 a second.
    let most = 1_000 + begun.elapsed().as_micros() / 50;
    let answered = answers(&client).len();
    assert!(answered >= 1_000 && u128::try_from(answered).unwrap() <= most, "{answered} of {most}");
}

/// Whoever can make a server say a token that is in use can end that connection.
#[tokio::test]
async fn no_id_of_somebody_who_lives_is_answered_with_its_token() {
    let (config, _) = server_and_client();
    // quinn signs a reset for any Initial when there is no server configuration, without asking whose ID it is.
    for config in [Some(config), None] {
        let (member, address) = member(4);
        let endpoints = endpoints(3, false);
        let server = endpoints.open(member, config).unwrap();
        endpoints.heirs().extend([(Generation(1), keys(1).reset.clone())]);
        let client = client_of(address).await;
        // A neighbour's, other generations', and those that this member is yet to mint.
        let lives = [(3, 5, 0), (2, 4, 0), (4, 4, 7), (3, 4, 0), (3, 4, crate::cid::MAX_COUNTER - 1)];
        for (generation, member, counter) in lives {
            let short = orphan(generation, member, counter);
            let mut initial = [0; 1_200];
            initial[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]);
            initial[6..14].copy_from_slice(&short[1..9]);
            for packet in [&short[..], &initial] {
                client.send(packet).await.unwrap();
            }
        }
        // Once this one is answered, the others have been looked at.
        client.send(&orphan(1, 4, 0)).await.unwrap();
        loop {
            let answer = answer(&client).await;
            for (generation, member, counter) in lives {
                assert!(!is_reset(&answer, &orphan(generation, member, counter), generation), "{generation} {member}");
            }
            if is_reset(&answer, &orphan(1, 4, 0), 1) {
                break;
            }
        }
        drop(server);
    }
}

/// Passes datagrams between a client and whichever server it is told.
async fn forward(
    front: tokio::net::UdpSocket,
    back: tokio::net::UdpSocket,
    server: tokio::sync::watch::Receiver<SocketAddr>,
) {
    let (mut up, mut down) = ([0; 2_000], [0; 2_000]);
    let mut client = None;
    loop {
        tokio::select! {
            Ok((length, from)) = front.recv_from(&mut up) => {
                client = Some(from);
                let to = *server.borrow();
                back.send_to(&up[..length], to).await.unwrap();
            }
            Ok(length) = back.recv(&mut down) => {
                front.send_to(&down[..length], client.unwrap()).await.unwrap();
            }
        }
    }
}

/// A Retry of one generation is good for the next: its token opens there, and the Initial that carries it, whose
/// destination ID the first one minted, is not taken for foreign.
#[tokio::test]
async fn a_client_that_was_told_to_retry_can_finish_with_another_generation() {
    let (server, client) = server_and_client();
    let ((old, old_address), (new, new_address)) = (member(4), member(8));
    let old = endpoints(1, false).open(old, Some(server.clone())).unwrap();
    let new = endpoints(2, false).open(new, Some(server)).unwrap();

    let front = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let back = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = front.local_addr().unwrap();
    let (steer, steered) = tokio::sync::watch::channel(old_address);
    let forwarder = tokio::spawn(forward(front, back, steered));

    let dialer = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connecting = dialer.connect_with(client, address, "localhost").unwrap();
    let retried: Incoming = in_time(old.endpoint.accept()).await.unwrap();
    steer.send(new_address).unwrap();
    retried.retry().unwrap();

    let again = in_time(new.endpoint.accept()).await.unwrap();
    assert!(again.remote_address_validated());
    let (accepted, connected) = in_time(async { tokio::join!(again, connecting) }).await;
    accepted.unwrap();
    connected.unwrap();
    assert_eq!(new.counters.foreign(), 0);
    forwarder.abort();
}

#[tokio::test]
async fn a_generation_that_fits_into_no_id_makes_no_endpoint() {
    for generation in [0, 65_536] {
        let error = endpoints(generation, false).open(member(4).0, None).unwrap_err();
        assert!(error.to_string().contains("is not within"), "{error}");
    }
}
