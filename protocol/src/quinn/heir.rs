//! What an heir sends: stateless resets, unasked, to the clients of a dead generation.

use super::crypto::{TOKEN_LEN, token};
use super::endpoint::Endpoints;
use super::socket::MemberSocket;
use crate::child::Estate;
use crate::cid::{Cipher, MemberId, Tag};
use crate::ledger::Entry;
use quinn::AsyncUdpSocket as _;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How long those have who wait in the sockets already, before others are told to come too.
const HEAD_START: Duration = Duration::from_millis(25);
/// From one unasked reset to the next, over all members: 3 333 a second. Each is a handshake a moment later, of which a core
/// does some 1 000 a second.
const INTERVAL: Duration = Duration::from_micros(300);
/// How far it may run ahead: what a timer can resolve.
const AHEAD: Duration = Duration::from_millis(2);
/// The length of a reset. It looks like a short packet (RFC 9000 section 10.3), and is no longer than the largest that may
/// answer a packet of 43 bytes.
const RESET_LEN: usize = 42;

/// What has come of telling the clients of dead generations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// So many datagrams were sent.
    pub sent: u64,
    /// So many entries were of no use: not of the generation whose ledger it is, without a socket of ours that their client
    /// knows, or not to be reached.
    pub skipped: u64,
    /// So many ledgers could not be read, or not to the end.
    pub unreadable: u64,
}

impl Endpoints {
    /// Answers for these dead generations from now on; then, while the future runs, sends each client in their ledgers a
    /// stateless reset. A generation that this process is heir to already, or is itself, is left out. All endpoints
    /// should be open by now, since resets are sent from their sockets.
    pub fn inherit(&self, estates: Vec<Estate>) -> impl Future<Output = Told> + Send + use<> {
        let new = estates.into_iter().filter(|estate| {
            let generation = estate.generation;
            generation != self.generation() && self.heirs().insert(generation, estate.key.clone())
        });
        let (new, endpoints) = (new.collect::<Vec<_>>(), self.clone());
        async move {
            let turn = endpoints.turn();
            let _one_at_a_time = turn.lock().await;
            let mut told = Told::default();
            let mut pace = Pace(Instant::now() + HEAD_START);
            for estate in new {
                tell(&endpoints, &estate, &mut pace, &mut told).await;
            }
            told
        }
    }
}

async fn tell(endpoints: &Endpoints, estate: &Estate, pace: &mut Pace, told: &mut Told) {
    let reader = match &estate.ledger {
        Some(Ok(reader)) => reader,
        Some(Err(_)) => return told.unreadable += 1,
        None => return,
    };
    for piece in reader.pieces() {
        let Ok(piece) = piece else { return told.unreadable += 1 };
        for (member, entry) in piece {
            let socket = if is_of(endpoints.cipher(), &entry, estate, member) {
                estate.routes.iter().find_map(|route| endpoints.socket(route.via(member)?))
            } else {
                None
            };
            let Some(socket) = socket else {
                told.skipped += 1;
                continue;
            };
            pace.next().await;
            match send(&socket, &entry, estate).await {
                Ok(()) => told.sent += 1,
                Err(_unreachable) => told.skipped += 1,
            }
        }
    }
}

/// Whether the ID is one of the dead generation's own, minted by the member in whose section it is: the only ones that
/// its key may sign.
fn is_of(cipher: &Cipher, entry: &Entry, estate: &Estate, member: MemberId) -> bool {
    Tag::new(estate.generation, member) == Some(cipher.open(entry.id).tag())
}

async fn send(socket: &MemberSocket, entry: &Entry, estate: &Estate) -> io::Result<()> {
    let mut packet = [0; RESET_LEN];
    getrandom(&mut packet[..RESET_LEN - TOKEN_LEN], GetRandomFlags::empty())?;
    // The form and fixed bits of a short header.
    packet[0] = 0x40 | packet[0] >> 2;
    packet[RESET_LEN - TOKEN_LEN..].copy_from_slice(&token(&estate.key, entry.id));
    let six = socket.local_addr()?.is_ipv6();
    let destination = match entry.client {
        SocketAddr::V6(_) if !six => return Err(io::ErrorKind::AddrNotAvailable.into()),
        // With its scope.
        client @ SocketAddr::V6(_) => client,
        client @ SocketAddr::V4(_) => SocketAddr::new(family(client.ip(), six), client.port()),
    };
    let local = entry.local.map(|local| family(local, six));
    loop {
        match socket.send_beside(&packet, destination, local) {
            // The kernel's buffer is full, which quinn's own sending waits for; beside it there is no hurry.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(AHEAD).await,
            sent => return sent,
        }
    }
}

/// As a socket of that family takes it.
fn family(ip: IpAddr, six: bool) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if six => ip.to_ipv6_mapped().into(),
        IpAddr::V6(ip) if !six => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    }
}

/// When the next one may be sent.
struct Pace(Instant);

impl Pace {
    async fn next(&mut self) {
        let now = Instant::now();
        // A timer that fires late costs nothing of the pace.
        self.0 = self.0.max(now.checked_sub(AHEAD).unwrap_or(now)) + INTERVAL;
        if self.0 > now + AHEAD {
            sleep_until(self.0).await;
        }
    }
}

#[cfg(test)]
mod tests;
