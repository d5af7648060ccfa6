//! Binding UDP and TCP sockets, so that an address that someone holds is an error and never shared.

use super::error::{GrantError, Warning};
use super::holder::Holder;
use crate::sys::sock_diag::Transport;
use nix::sys::socket::{setsockopt, sockopt};
use protocol::message::Kind;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;

/// Asked for per direction and member, in bytes: at 1 Gbit/s a scheduling delay of 60 ms.
const BUFFER: usize = 8 << 20;
/// Connections that wait for `accept`, at most; net.core.somaxconn may limit it further.
const BACKLOG: i32 = 1_024;

/// Binds the first member of a group. Port 0 lets the kernel choose.
///
/// It binds without SO_REUSEPORT, which fails if anyone at all has the address, and turns it on only then: so of two
/// supervisors that start at once one loses, with no lock. The kernel makes a group of the two when the second member
/// binds (`reuseport_add_sock` in net/core/sock_reuseport.c), with the first one at position 0; for a group of one
/// a second socket comes and goes, because a program can be attached to a group alone.
pub(super) fn first_member(name: &str, address: SocketAddr, gro: bool) -> Result<Socket, GrantError> {
    let cause = Cause { name, kind: Kind::Quic, address };
    let socket = udp(address, gro).map_err(|error| cause.system("open", error))?;
    bind(&socket, &cause)?;
    let bound = local(&socket).map_err(|error| cause.system("open", error))?;
    socket.set_reuse_port(true).map_err(|error| cause.system("share", error))?;
    drop(next_member(name, bound, gro)?);
    Ok(socket)
}

/// Binds another member, at the next position of its group.
pub(super) fn next_member(name: &str, address: SocketAddr, gro: bool) -> Result<Socket, GrantError> {
    let cause = Cause { name, kind: Kind::Quic, address };
    let socket = udp(address, gro).map_err(|error| cause.system("open", error))?;
    socket.set_reuse_port(true).map_err(|error| cause.system("share", error))?;
    bind(&socket, &cause)?;
    Ok(socket)
}

/// Binds a TCP socket and listens.
pub(super) fn tcp(name: &str, address: SocketAddr) -> Result<Socket, GrantError> {
    let cause = Cause { name, kind: Kind::Tcp, address };
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        dual_stack(&socket, address)?;
        // Else the connections of an earlier process in TIME_WAIT keep the port. Two listeners still exclude each other.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let socket: Socket = open().map_err(|error| cause.system("open", error))?;
    bind(&socket, &cause)?;
    socket.listen(BACKLOG).map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRINUSE) => cause.in_use(),
        Some(_) | None => cause.system("listen on", error),
    })?;
    Ok(socket)
}

/// What an IP socket is bound to.
pub(super) fn local(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}

/// Names the buffers of `socket` that are smaller than they should be.
pub(super) fn small_buffers(name: &str, socket: &Socket) -> Vec<Warning> {
    let sizes = [(socket.recv_buffer_size(), "net.core.rmem_max"), (socket.send_buffer_size(), "net.core.wmem_max")];
    let warn = |(size, sysctl): (io::Result<usize>, &'static str)| {
        // The kernel doubles what is asked for, for its own overhead (socket(7), SO_RCVBUF).
        let granted = size.ok()? / 2;
        (granted < BUFFER).then(|| Warning::Buffer { name: name.to_owned(), wanted: BUFFER, granted, sysctl })
    };
    sizes.into_iter().filter_map(warn).collect()
}

fn udp(address: SocketAddr, gro: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    dual_stack(&socket, address)?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    setsockopt(&socket, sockopt::UdpGroSegment, &gro)?;
    Ok(socket)
}

/// `[::]` takes IPv4 as well, whatever net.ipv6.bindv6only says.
fn dual_stack(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() { socket.set_only_v6(false) } else { Ok(()) }
}

fn bind(socket: &Socket, cause: &Cause<'_>) -> Result<(), GrantError> {
    socket.bind(&SockAddr::from(cause.address)).map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRINUSE) => cause.in_use(),
        Some(_) | None => cause.system("bind", error),
    })
}

/// What an error is about.
struct Cause<'a> {
    name: &'a str,
    kind: Kind,
    address: SocketAddr,
}

impl Cause<'_> {
    fn in_use(&self) -> GrantError {
        let transport = if self.kind == Kind::Tcp { Transport::Tcp } else { Transport::Udp };
        GrantError::InUse {
            name: self.name.to_owned(),
            kind: self.kind,
            address: self.address.to_string(),
            holder: Holder::of(transport, self.address),
        }
    }

    fn system(&self, action: &'static str, source: io::Error) -> GrantError {
        let address = self.address.to_string();
        GrantError::System { name: self.name.to_owned(), kind: self.kind, address, action, source }
    }
}
