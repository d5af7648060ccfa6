//! Who has sockets on a port (sock_diag(7), NETLINK_SOCK_DIAG). It needs no privilege and shows every user's sockets of
//! this network namespace.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

/// A transport protocol to look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Every UDP socket.
    Udp,
    /// TCP sockets that listen, or are bound and may begin to (the latter from Linux 6.8 on).
    Tcp,
}

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// What it is bound to.
    pub local: SocketAddr,
    /// Its number, as in `/proc/PID/fd` and in fstat(2).
    pub inode: u64,
    /// Whose it is.
    pub uid: u32,
}

/// The sockets on `port`, IPv4 and IPv6. Never blocks: the kernel answers while it is asked.
///
/// # Errors
/// What the kernel says: ENOENT when it has no inet_diag, EPERM or EAFNOSUPPORT in a sandbox.
pub fn on_port(transport: Transport, port: u16) -> io::Result<Vec<Socket>> {
    let netlink = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    let kernel = NetlinkAddr::new(0, 0);
    let mut sockets = Vec::new();
    for family in [AF_INET, AF_INET6] {
        sendto(netlink.as_raw_fd(), &request(transport, family, port), &kernel, MsgFlags::empty())?;
        let mut buffer = vec![0; BUFFER];
        loop {
            let len = match recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => len,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if read_messages(&buffer[..len.min(BUFFER)], &mut sockets)? == Progress::Done {
                break;
            }
        }
    }
    // The kernel filters by port as well, but has not always done so for every table.
    sockets.retain(|socket| socket.local.port() == port);
    Ok(sockets)
}

/// struct nlmsghdr and struct inet_diag_req_v2 (linux/inet_diag.h).
fn request(transport: Transport, family: u8, port: u16) -> Vec<u8> {
    let (protocol, states): (u8, u32) = match transport {
        Transport::Udp => (17, u32::MAX),
        Transport::Tcp => (6, 1 << TCP_LISTEN | 1 << TCP_BOUND_INACTIVE),
    };
    let mut bytes = Vec::with_capacity(REQUEST_LEN);
    bytes.extend(u32::try_from(REQUEST_LEN).unwrap_or_default().to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, protocol, 0, 0]);
    bytes.extend(states.to_ne_bytes());
    bytes.extend(port.to_be_bytes());
    bytes.resize(REQUEST_LEN - 8, 0);
    // INET_DIAG_NOCOOKIE
    bytes.extend([0xff; 8]);
    bytes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    More,
    Done,
}

fn read_messages(mut bytes: &[u8], sockets: &mut Vec<Socket>) -> io::Result<Progress> {
    while let (Some(len), Some(kind)) = (bytes_at(bytes, 0), bytes_at(bytes, 4)) {
        let len = usize::try_from(u32::from_ne_bytes(len)).unwrap_or(usize::MAX);
        let Some(payload) = bytes.get(HEADER_LEN..len) else { return Err(malformed()) };
        match u16::from_ne_bytes(kind) {
            NLMSG_DONE => return Ok(Progress::Done),
            NLMSG_ERROR => {
                let errno = bytes_at(payload, 0).map(i32::from_ne_bytes).ok_or_else(malformed)?;
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            SOCK_DIAG_BY_FAMILY => sockets.extend(read_socket(payload)),
            _ => {}
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Progress::More)
}

/// struct inet_diag_msg (linux/inet_diag.h).
fn read_socket(payload: &[u8]) -> Option<Socket> {
    let port = u16::from_be_bytes(bytes_at(payload, 4)?);
    let ip = match *payload.first()? {
        AF_INET => IpAddr::V4(Ipv4Addr::from(bytes_at::<4>(payload, 8)?)),
        AF_INET6 => IpAddr::V6(Ipv6Addr::from(bytes_at::<16>(payload, 8)?)),
        _ => return None,
    };
    let uid = u32::from_ne_bytes(bytes_at(payload, 64)?);
    let inode = u32::from_ne_bytes(bytes_at(payload, 68)?);
    Some(Socket { local: SocketAddr::new(ip, port), inode: inode.into(), uid })
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed answer of sock_diag")
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP_LISTEN: u32 = 10;
const TCP_BOUND_INACTIVE: u32 = 13;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// NLM_F_REQUEST | NLM_F_DUMP.
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const HEADER_LEN: usize = 16;
const REQUEST_LEN: usize = HEADER_LEN + 56;
/// Larger than any datagram of a dump (the kernel fills at most 32 kB).
const BUFFER: usize = 32_768;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsFd;

    fn inode(socket: impl AsFd) -> u64 {
        nix::sys::stat::fstat(socket).expect("fstat").st_ino
    }

    #[test]
    fn sockets_are_found_by_port_with_number_and_owner() {
        let uid = nix::unistd::getuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
            let udp = UdpSocket::bind(address).expect("a socket");
            let local = udp.local_addr().expect("bound");
            let found = on_port(Transport::Udp, local.port()).expect("sock_diag");
            assert!(found.contains(&Socket { local, inode: inode(&udp), uid }), "{local}: {found:?}");

            let tcp = TcpListener::bind(address).expect("a socket");
            let local = tcp.local_addr().expect("bound");
            let found = on_port(Transport::Tcp, local.port()).expect("sock_diag");
            assert!(found.contains(&Socket { local, inode: inode(&tcp), uid }), "{local}: {found:?}");
        }
    }

    #[test]
    fn answers_that_are_cut_short_are_errors_or_nothing() {
        let mut sockets = Vec::new();
        let mut message = vec![0; 88];
        message[..4].copy_from_slice(&88u32.to_ne_bytes());
        message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message[16] = AF_INET;
        for len in 0..message.len() {
            let result = read_messages(&message[..len], &mut sockets);
            assert!(sockets.is_empty(), "{len}");
            assert_eq!(result.is_err(), len >= 6, "{len}");
        }
        assert_eq!(read_messages(&message, &mut sockets).expect("whole"), Progress::More);
        assert_eq!(sockets.len(), 1);
        message[..4].copy_from_slice(&7u32.to_ne_bytes());
        assert!(read_messages(&message, &mut sockets).is_err(), "a length below the header's would never end");
    }
}
