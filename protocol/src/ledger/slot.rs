//! One client in eight words.
//!
//! ```text
//! 0  check over the others; 0: the slot is empty
//! 1  connection ID, as on the wire
//! 2  client's IP address, high 8 bytes (IPv4 as ::ffff:a.b.c.d)
//! 3  its low 8 bytes
//! 4  client's port: 16 bits | flags: 16 (bit 0: words 5 and 6 are known) | scope id: 32
//! 5  local IP address, high 8 bytes
//! 6  its low 8 bytes
//! 7  0
//! ```

use crate::cid::CID_LEN;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The words of a slot.
pub(super) const WORDS: usize = super::SLOT_LEN / 8;

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The connection ID with which the client's last packet came.
    pub id: [u8; CID_LEN],
    /// Where that packet came from. An IPv4 address is one, also if it came as a mapped one.
    pub client: SocketAddr,
    /// The address to which it was sent, if that is known: answers have to come from there.
    pub local: Option<IpAddr>,
}

/// Memory that a slot's words are stored into, one after the other, in the order of the calls.
pub(super) trait Store {
    /// Stores a word. `is_check`: what was stored before must be there before it, and it before what follows.
    fn store(&mut self, word: usize, value: u64, is_check: bool);
}

impl Entry {
    /// Writes it over whatever is there. Between any two stores the slot is empty to a reader, or whole.
    pub(super) fn write(&self, slot: &mut impl Store) {
        let words = self.words();
        slot.store(0, 0, true);
        for (number, word) in words.iter().enumerate().skip(1) {
            slot.store(number, *word, false);
        }
        slot.store(0, words[0], true);
    }

    /// What the words of a slot say; `None`: it is empty, half-written, or no client to be told.
    pub(super) fn read(words: [u64; WORDS]) -> Option<Self> {
        if words[0] != check(&words) || words[7] != 0 {
            return None;
        }
        let port = (words[4] & 0xffff) as u16;
        let known = words[4] & LOCAL != 0;
        if words[4] & !LOCAL & 0xffff_0000 != 0 {
            return None;
        }
        let scope = (words[4] >> 32) as u32;
        let ip = address(words[2], words[3]);
        let client = match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
        };
        let unicast = match ip {
            IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
            IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
        };
        let local = known.then(|| address(words[5], words[6]));
        (unicast && port != 0).then_some(Self { id: words[1].to_be_bytes(), client, local })
    }

    fn words(&self) -> [u64; WORDS] {
        let (client_high, client_low) = halves(self.client.ip());
        let (local_high, local_low) = self.local.map_or((0, 0), halves);
        let flags = if self.local.is_some() { LOCAL } else { 0 };
        let scope = match self.client {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(client) => client.scope_id(),
        };
        let port = u64::from(self.client.port()) | flags | u64::from(scope) << 32;
        let id = u64::from_be_bytes(self.id);
        let mut words = [0, id, client_high, client_low, port, local_high, local_low, 0];
        words[0] = check(&words);
        words
    }
}

/// Empties a slot.
pub(super) fn clear(slot: &mut impl Store) {
    slot.store(0, 0, true);
}

/// Bit 0 of the flags.
const LOCAL: u64 = 1 << 16;

/// FNV-1a over words rather than bytes, folded after each so that the high half counts too; never 0. It tells what was
/// torn from what is whole. It need not withstand anybody: who can write the words can write the check.
fn check(words: &[u64; WORDS]) -> u64 {
    let mix = |hash: u64, word: &u64| {
        let mixed = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        mixed ^ (mixed >> 32)
    };
    words[1..].iter().fold(0xcbf2_9ce4_8422_2325, mix).max(1)
}

fn halves(ip: IpAddr) -> (u64, u64) {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let [a, b, c, d, e, f, g, h] = ip.segments().map(u64::from);
    (a << 48 | b << 32 | c << 16 | d, e << 48 | f << 32 | g << 16 | h)
}

fn address(high: u64, low: u64) -> IpAddr {
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), |ip: Ipv4Addr| IpAddr::V4(ip))
}

#[cfg(test)]
mod tests;
