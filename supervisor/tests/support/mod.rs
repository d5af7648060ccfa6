//! A reuseport group and packets for it.

use protocol::cid::{Cipher, ConnectionId, MemberId, Tag};
use protocol::message::Generation;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use supervisor::steering::Range;

/// UDP sockets that share one port, in the order of binding: positions are indices. None blocks.
pub(crate) struct Group(Vec<UdpSocket>);

impl Group {
    /// On a free port of `address`, whose own port is not looked at. `[::]` is dual-stack unless `only_v6`.
    pub(crate) fn bind(address: SocketAddr, members: u16, only_v6: bool) -> io::Result<Self> {
        // Port 0 together with SO_REUSEPORT may yield the port of another group, so a plain socket finds a free one.
        let port = UdpSocket::bind(SocketAddr::new(address.ip(), 0))?.local_addr()?.port();
        let address = SocketAddr::new(address.ip(), port);
        (0..members).map(|_| member(address, only_v6)).collect::<io::Result<_>>().map(Self)
    }

    /// What it is bound to.
    pub(crate) fn port(&self) -> u16 {
        self.0[0].local_addr().map_or(0, |address| address.port())
    }

    /// Any member stands for the whole group.
    pub(crate) fn any(&self) -> BorrowedFd<'_> {
        self.0[self.0.len() / 2].as_fd()
    }

    /// Calls `each` with the position and the content of every packet that waits.
    pub(crate) fn drain(&self, mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        let mut buffer = [0; 2_048];
        for (position, socket) in (0..).zip(&self.0) {
            loop {
                match socket.recv(&mut buffer) {
                    Ok(length) => each(position, &buffer[..length]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// One more member of the group at `address`, behind all others. It has to live as long as the group.
pub(crate) fn member(address: SocketAddr, only_v6: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// The tag of an existing generation and member; else the test is wrong.
pub(crate) fn tag(generation: u32, member: u16) -> Tag {
    MemberId::new(member).and_then(|member| Tag::new(Generation(generation), member)).expect("a tag that exists")
}

/// The range of that many members of a generation, from that member number and position on.
pub(crate) fn range(generation: u32, first: u16, members: u16, position: u16) -> Range {
    Range::new(tag(generation, first), members, position).expect("a range that exists")
}

/// The `counter`-th ID of a member.
pub(crate) fn id(cipher: &Cipher, tag: Tag, counter: u64) -> [u8; 8] {
    cipher.seal(ConnectionId::new(tag, counter).expect("a counter that exists"))
}

/// A packet with a short header, filled up to `length` bytes with `tail` at its end.
pub(crate) fn short(id: &[u8], length: usize, tail: &[u8]) -> Vec<u8> {
    fill([&[0x40], id].concat(), length, tail)
}

/// A packet with a long header, as [`short`].
pub(crate) fn long(id: &[u8], length: usize, tail: &[u8]) -> Vec<u8> {
    let id_length = u8::try_from(id.len()).expect("an ID of at most 255 bytes");
    fill([&[0xc0, 0, 0, 0, 1, id_length], id].concat(), length, tail)
}

fn fill(mut packet: Vec<u8>, length: usize, tail: &[u8]) -> Vec<u8> {
    packet.resize(length.saturating_sub(tail.len()).max(packet.len()), 0xee);
    packet.extend_from_slice(tail);
    packet
}
