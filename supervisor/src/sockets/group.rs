//! All UDP members of one address.

use super::bind::{first_member, local, next_member, small_buffers};
use super::error::{GrantError, GroError, Warning};
use super::runs::Run;
use crate::steering::Program;
use crate::sys::bpf;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::sys::stat::fstat;
use socket2::Socket;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// Datagrams that are thrown away per member before it is issued again, at most. An 8 MiB buffer holds fewer of any
/// size; the bound is for a member at which packets still arrive.
const MAX_FLUSH: usize = 32_768;

/// The UDP sockets of one address with SO_REUSEPORT, in the order in which they were bound: their index is their
/// position in the kernel's array.
///
/// A member closes with its whole group alone: the kernel moves the last socket into the hole
/// (`__reuseport_detach_sock` in net/core/sock_reuseport.c), and the steering program would hit the wrong one.
#[derive(Debug)]
pub(super) struct Group {
    address: SocketAddr,
    members: Vec<Socket>,
    /// What is attached; for attaching it again.
    program: Option<Program>,
}

impl Group {
    /// A new group of `members` (at least 1) at an address that nobody has. Says also which buffers are too small.
    pub(super) fn bind(
        name: &str,
        address: SocketAddr,
        members: usize,
        gro: bool,
    ) -> Result<(Self, Vec<Warning>), GrantError> {
        let first = first_member(name, address, gro)?;
        let warnings = small_buffers(name, &first);
        let address = local(&first).unwrap_or(address);
        let mut group = Self { address, members: vec![first], program: None };
        let rest = Appended::bind(name, address, members.saturating_sub(1), gro)?;
        group.append(rest);
        Ok((group, warnings))
    }

    /// All members of an existing group, in the order of their positions. What is attached is not known.
    pub(super) const fn restored(address: SocketAddr, members: Vec<Socket>) -> Self {
        Self { address, members, program: None }
    }

    /// Where it is; the port is never 0.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many sockets it has.
    pub(super) const fn len(&self) -> usize {
        self.members.len()
    }

    /// Takes what was bound for it, at the end.
    pub(super) fn append(&mut self, mut appended: Appended) {
        self.members.append(&mut appended.0);
    }

    /// The member at each position of `run`, for as many as there are.
    pub(super) fn members(&self, run: Run) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.members.get(run.positions()).unwrap_or_default().iter().map(AsFd::as_fd)
    }

    /// Throws away what waits in the queue of the member at `position`: it was sent to an earlier generation.
    pub(super) fn flush(&self, position: usize) {
        if let Some(member) = self.members.get(position) {
            empty(member);
        }
    }

    /// Sets UDP_GRO on every member and reads it back.
    pub(super) fn gro(&self, on: bool) -> Result<(), GroError> {
        let system =
            |errno: nix::Error| GroError::System { address: self.address.to_string(), on, source: errno.into() };
        for member in &self.members {
            setsockopt(member, sockopt::UdpGroSegment, &on).map_err(system)?;
        }
        for (position, member) in self.members.iter().enumerate() {
            if getsockopt(member, sockopt::UdpGroSegment).map_err(system)? != on {
                return Err(GroError::Unchanged { address: self.address.to_string(), position, on });
            }
        }
        Ok(())
    }

    /// Replaces the program of the group; the result is what was attached before.
    pub(super) fn attach(&mut self, program: Program) -> Result<Option<Program>, bpf::AttachError> {
        if let Some(first) = self.members.first() {
            bpf::attach(first.as_fd(), &program)?;
        }
        Ok(self.program.replace(program))
    }

    /// Undoes [`Self::attach`].
    pub(super) fn attach_before(&mut self, before: Option<Program>) {
        self.program = before;
        if let (Some(first), None) = (self.members.first(), &self.program) {
            // It had none: the kernel spreads by its own hash again. If that fails, a plan that is newer than the rest
            // stays, in which every position exists.
            let _ = bpf::detach(first.as_fd());
        }
        let _ = self.reattach();
    }

    /// Attaches the same program again, in case that someone else's is there.
    pub(super) fn reattach(&self) -> Result<(), bpf::AttachError> {
        match (self.members.first(), &self.program) {
            (Some(first), Some(program)) => bpf::attach(first.as_fd(), program),
            (Some(_) | None, None) | (None, Some(_)) => Ok(()),
        }
    }

    /// The numbers of its sockets, as sock_diag shows them.
    pub(super) fn inodes(&self) -> io::Result<BTreeSet<u64>> {
        self.members.iter().map(|member| Ok(fstat(member)?.st_ino)).collect()
    }
}

/// New members of a group, already in the kernel's array, that are closed again unless the group takes them.
#[derive(Debug)]
pub(super) struct Appended(Vec<Socket>);

impl Appended {
    /// Binds that many behind the last member of the group at `address`.
    pub(super) fn bind(name: &str, address: SocketAddr, members: usize, gro: bool) -> Result<Self, GrantError> {
        let mut appended = Self(Vec::with_capacity(members));
        for _ in 0..members {
            appended.0.push(next_member(name, address, gro)?);
        }
        Ok(appended)
    }
}

impl Drop for Appended {
    /// Last first: so each is the last of the kernel's array when it closes, and no other moves.
    fn drop(&mut self) {
        while let Some(last) = self.0.pop() {
            drop(last);
        }
    }
}

fn empty(member: &Socket) {
    for _ in 0..MAX_FLUSH {
        match member.recv_with_flags(&mut [], libc::MSG_DONTWAIT | libc::MSG_TRUNC) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // A datagram, or the error of one that was sent (ICMP), which is also taken from the socket by reading.
            Ok(_) | Err(_) => {}
        }
    }
}
