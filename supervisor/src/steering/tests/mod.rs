//! The program, run by the interpreter, against what is said about it and against the model.

mod forms;
mod interpreter;
mod model;
mod plan;
mod size;
mod source;

use super::{Plan, Program, Range, interpreter as machine, program};
use protocol::cid::{CID_LEN, Cipher, ConnectionId, MemberId, Tag};
use protocol::message::Generation;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SEED: u64 = 0x6d6f_712d_7375_7065;

fn rng() -> StdRng {
    StdRng::seed_from_u64(SEED)
}

fn cipher() -> Cipher {
    Cipher::new(b"a key for tests.")
}

fn tag(generation: u32, member: u16) -> Tag {
    Tag::new(Generation(generation), MemberId::new(member).unwrap()).unwrap()
}

fn range(generation: u32, first: u16, members: u16, position: u16) -> Range {
    Range::new(tag(generation, first), members, position).unwrap()
}

/// An ID of that tag, with a counter that uses all its bits.
fn id(cipher: &Cipher, tag: Tag) -> [u8; CID_LEN] {
    cipher.seal(ConnectionId::new(tag, 0xa_5a5a_5a5a).unwrap())
}

/// A packet with a short header: first byte, ID, and as many more bytes as a real one has at least.
fn short(id: &[u8]) -> Vec<u8> {
    [&[0x40], id, &[0xee; 12]].concat()
}

/// A packet with a long header of QUIC version 1.
fn long(id: &[u8]) -> Vec<u8> {
    [&[0xc0, 0, 0, 0, 1, u8::try_from(id.len()).unwrap()], id, &[0, 0xee, 0xee]].concat()
}

/// The packet from the IP header on; `options`: four-byte words of IPv4 options.
fn network(source: SocketAddr, options: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = match source.ip() {
        IpAddr::V4(ip) => {
            let mut header = vec![0x11; 20 + 4 * usize::from(options)];
            header[0] = 0x45 + options;
            header[12..16].copy_from_slice(&ip.octets());
            header
        }
        IpAddr::V6(ip) => {
            let mut header = vec![0x11; 40];
            header[0] = 0x60;
            header[8..24].copy_from_slice(&ip.octets());
            header
        }
    };
    bytes.extend(source.port().to_be_bytes());
    bytes.extend([0x11; 6]);
    bytes.extend(payload);
    bytes
}

fn run(program: &Program, payload: &[u8], source: SocketAddr) -> u16 {
    u16::try_from(machine::run(program.insns(), payload, &network(source, 0, payload))).unwrap()
}

fn v4(rng: &mut StdRng) -> SocketAddr {
    (Ipv4Addr::from(rng.next_u32()), rng.random()).into()
}

fn v6(rng: &mut StdRng) -> SocketAddr {
    // Global unicast: never an IPv4 address in disguise.
    (Ipv6Addr::from((2 << 124) | rng.random::<u128>() >> 4), rng.random()).into()
}

fn either(rng: &mut StdRng) -> SocketAddr {
    if rng.random() { v4(rng) } else { v6(rng) }
}
