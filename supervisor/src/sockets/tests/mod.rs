//! Against real sockets of the loopback interface, each test at ports and paths of its own.

mod grant;
mod holder;
mod members;
mod request;
mod saved;
mod steer;
mod unix;

use super::{Granted, Table};
use crate::sys::sock_diag::{self, Transport};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use protocol::cid::{Cipher, ConnectionId, MemberId, Tag};
use protocol::message::{Generation, Kind, Wanted};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

const KEY: [u8; 16] = *b"sixteen key byte";

const fn generation(number: u32) -> Generation {
    Generation(number)
}

fn table() -> Table {
    Table::new(Cipher::new(&KEY))
}

fn wanted(name: &str, kind: Kind, address: &str) -> Wanted {
    Wanted { name: name.to_owned(), kind, address: address.to_owned(), members: 1, mode: None }
}

fn quic(address: &str, members: u16) -> Wanted {
    Wanted { members, ..wanted("quic", Kind::Quic, address) }
}

fn numbers(granted: &Granted<'_>) -> Vec<Vec<u16>> {
    granted.listeners.iter().map(|handed| handed.socket.members.clone()).collect()
}

fn addresses(granted: &Granted<'_>) -> Vec<String> {
    granted.listeners.iter().map(|handed| handed.socket.address.clone()).collect()
}

fn inode(socket: impl AsFd) -> u64 {
    nix::sys::stat::fstat(socket).expect("fstat").st_ino
}

/// The sockets that a generation has, in order, all listeners together.
fn inodes(table: &Table, of: u32) -> Vec<u64> {
    table.handed(generation(of)).iter().flat_map(|handed| handed.fds.iter().map(inode)).collect()
}

/// Where a generation's first listener is, as a client on this machine sees it.
fn target(table: &Table, of: u32) -> SocketAddr {
    let address = table.handed(generation(of))[0].socket.address.clone();
    let address: SocketAddr = address.parse().expect("an address");
    let loopback = if address.is_ipv4() { "127.0.0.1" } else { "::1" };
    if address.ip().is_unspecified() {
        SocketAddr::new(loopback.parse().expect("an address"), address.port())
    } else {
        address
    }
}

fn sockets_on(port: u16) -> usize {
    sock_diag::on_port(Transport::Udp, port).expect("sock_diag").len()
}

/// A QUIC packet with a short header and the connection ID of this member.
fn packet(of: u32, member: u16, counter: u64) -> Vec<u8> {
    let member = MemberId::new(member).expect("a member number");
    let tag = Tag::new(generation(of), member).expect("a generation");
    let id = ConnectionId::new(tag, counter).expect("a counter");
    let mut packet = vec![0x40];
    packet.extend(Cipher::new(&KEY).seal(id));
    packet.resize(64, 0);
    packet
}

/// What begins a connection: a long header with an ID that no one here has made.
fn initial() -> Vec<u8> {
    let mut packet = vec![0xc0, 0, 0, 0, 1, 8];
    packet.resize(1_200, 0x5a);
    packet
}

fn client_for(target: SocketAddr) -> UdpSocket {
    UdpSocket::bind(if target.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).expect("a client")
}

fn has_packet(member: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(member, PollFlags::POLLIN)], PollTimeout::ZERO).expect("poll") == 1
}

/// Which members of a generation have something to read, by their index. A packet over loopback is in its queue when
/// `send` returns.
fn filled(table: &Table, of: u32) -> Vec<usize> {
    let handed = table.handed(generation(of));
    let members = handed.iter().flat_map(|handed| &handed.fds);
    members.enumerate().filter(|(_, member)| has_packet(member.as_fd())).map(|(index, _)| index).collect()
}

/// Reads one packet from the member at this index.
fn take_one(table: &Table, of: u32, index: usize) {
    let handed = table.handed(generation(of));
    let member = handed.iter().flat_map(|handed| &handed.fds).nth(index).expect("a member");
    let socket = UdpSocket::from(member.try_clone_to_owned().expect("a duplicate"));
    socket.recv(&mut [0; 2_048]).expect("a packet");
}
