//! A member as quinn sees it: the runtime's own UDP socket without the datagrams that are not for it.

use super::filter::Filter;
use super::record::MemberLedger;
use crate::cid::HeirSet;
use crate::message::Generation;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// What came in on one member since its endpoint was made.
#[derive(Debug, Default)]
pub struct MemberCounters {
    received: AtomicU64,
    /// By the generation in their IDs.
    foreign: Mutex<BTreeMap<Generation, u64>>,
    heirs: HeirSet,
}

impl MemberCounters {
    pub(super) fn new(heirs: HeirSet) -> Self {
        Self { heirs, ..Self::default() }
    }

    /// Datagrams, foreign ones among them.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Datagrams whose connection ID belongs to another member or generation. A few are to be expected for some seconds
    /// after a generation has ended, from clients that missed its close; any other one is a fault of the steering. Those of a
    /// generation that this process turns out to be the heir of were not foreign: its word of that had not come yet.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        foreign.iter().filter(|(generation, _)| !self.heirs.contains(**generation)).map(|(_, count)| count).sum()
    }

    fn strayed(&self, generation: Generation) {
        *self.foreign.lock().unwrap_or_else(PoisonError::into_inner).entry(generation).or_default() += 1;
    }
}

#[derive(Debug)]
pub(super) struct MemberSocket {
    pub(super) inner: Arc<dyn AsyncUdpSocket>,
    /// The same socket, for what is sent beside quinn.
    pub(super) handle: UdpSocket,
    pub(super) filter: Filter,
    pub(super) counters: Arc<MemberCounters>,
    pub(super) ledger: Option<Arc<MemberLedger>>,
}

impl MemberSocket {
    /// Sends one datagram to `destination`, from the address `local` if there is one; both are of the socket's family.
    ///
    /// Not by the way of quinn's own datagrams: what it makes of an error there (one EINVAL, and it uses neither
    /// segmentation offload nor ECN any more) is for good, and the addresses here are from a process that is not trusted.
    ///
    /// # Errors
    ///
    /// As sendmsg(2): EAGAIN when the send buffer is full, EINVAL for a local address that is not ours.
    pub(super) fn send_beside(&self, packet: &[u8], destination: SocketAddr, local: Option<IpAddr>) -> io::Result<()> {
        let (parts, destination) = ([IoSlice::new(packet)], SockaddrStorage::from(destination));
        let send = |local: &[ControlMessage<'_>]| {
            sendmsg(self.handle.as_raw_fd(), &parts, local, MsgFlags::MSG_DONTWAIT, Some(&destination))
        };
        // ip(7) and ipv6(7): the address to send from; the route decides on the interface.
        match local {
            None => send(&[]),
            Some(IpAddr::V4(ip)) => send(&[ControlMessage::Ipv4PacketInfo(&libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            })]),
            Some(IpAddr::V6(ip)) => send(&[ControlMessage::Ipv6PacketInfo(&libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: 0,
            })]),
        }?;
        Ok(())
    }
}

impl AsyncUdpSocket for MemberSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let filled = ready!(self.inner.poll_recv(context, buffers, meta))?;
        let mut came = 0;
        let mut page = self.ledger.as_ref().map(|ledger| ledger.page(Instant::now()));
        for (buffer, meta) in buffers.iter_mut().zip(meta).take(filled) {
            let (client, local) = (meta.addr, meta.dst_ip);
            let own = |counter, id| {
                if let Some(page) = &mut page {
                    page.saw(counter, id, client, local);
                }
            };
            came += self.filter.sift(buffer, meta, own, |generation| self.counters.strayed(generation));
        }
        self.counters.received.fetch_add(came, Ordering::Relaxed);
        // A buffer that is empty now is one without a datagram to quinn.
        Poll::Ready(Ok(filled))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
