//! From who is active to which socket gets a packet.

use super::error::SteerError;
use super::group::Group;
use super::holder::Holder;
use super::listener::{ListenerId, Listening, Share};
use super::request::inet_overlap;
use super::table::Table;
use crate::core::Steering;
use crate::steering::{Plan, Program, Range, program};
use crate::sys::sock_diag::{self, Transport};
use protocol::cid::{MemberId, Tag};
use protocol::message::Generation;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;

impl Table {
    /// Replaces the steering program of every group.
    ///
    /// A group in which the active generation has no members (it no longer wants that listener) gives its new clients to
    /// the youngest live generation that has some there: they reach someone who knows the address until its last holder
    /// is gone and it closes. A group in which nobody live has members keeps the program that it has. Of a generation
    /// whose members lie apart in a group, the longest run gets the new clients, and every run its own connections.
    ///
    /// # Errors
    /// All groups have the programs that they had before.
    pub fn steer(&mut self, steering: &Steering) -> Result<(), SteerError> {
        let mut programs = Vec::new();
        for (id, group) in self.groups() {
            if let Some(plan) = self.steering_of(id, group, steering)? {
                programs.push((id, program(&self.cipher, &plan)));
            }
        }
        let mut done: Vec<(ListenerId, Option<Program>)> = Vec::new();
        for (id, program) in programs {
            let Some(group) = self.group_mut(id) else { continue };
            match group.attach(program) {
                Ok(before) => done.push((id, before)),
                Err(source) => {
                    let address = group.address().to_string();
                    for (id, before) in done {
                        if let Some(group) = self.group_mut(id) {
                            group.attach_before(before);
                        }
                    }
                    return Err(SteerError::Attach { address, source });
                }
            }
        }
        Ok(())
    }

    /// Attaches the same programs again: any holder of a member can replace or detach one, and nothing reads it back.
    ///
    /// # Errors
    /// The first group that did not take it; the others have been done as well.
    pub fn reattach(&self) -> Result<(), SteerError> {
        let mut result = Ok(());
        for (_, group) in self.groups() {
            let address = || group.address().to_string();
            let attached = group.reattach().map_err(|source| SteerError::Attach { address: address(), source });
            result = result.and(attached);
        }
        result
    }

    /// UDP sockets that are not ours but get, or could get, packets for our addresses. There should be none: only a
    /// process of our own user can have joined a group, and it takes clients away.
    ///
    /// # Errors
    /// The kernel does not say (no inet_diag, a sandbox).
    pub fn foreign(&self) -> io::Result<Vec<Foreign>> {
        let mut ours = BTreeSet::new();
        for (_, group) in self.groups() {
            ours.append(&mut group.inodes()?);
        }
        let mut foreign = Vec::new();
        for (_, group) in self.groups() {
            for socket in sock_diag::on_port(Transport::Udp, group.address().port())? {
                if !ours.contains(&socket.inode) && inet_overlap(socket.local, group.address()) {
                    let holder = Holder::of_socket(socket.inode, socket.uid);
                    foreign.push(Foreign { address: group.address(), holder });
                }
            }
        }
        Ok(foreign)
    }

    fn steering_of(&self, id: ListenerId, group: &Group, steering: &Steering) -> Result<Option<Plan>, SteerError> {
        let address = || group.address().to_string();
        // Youngest first: a successor at the members of a dead generation gets the packets of both.
        let mut live: Vec<Range> = Vec::new();
        let mut youngest = None;
        let mut generations = steering.live.clone();
        generations.sort_unstable_by_key(|generation| std::cmp::Reverse(*generation));
        for generation in generations {
            let mut ranges = self.ranges(id, group, generation)?;
            ranges.retain(|range| !live.iter().any(|other| same_positions(range, other)));
            youngest = youngest.or_else(|| longest(&ranges));
            live.append(&mut ranges);
        }
        live.reverse();
        let Some(active) = longest(&self.ranges(id, group, steering.active)?).or(youngest) else { return Ok(None) };
        let canary = match steering.canary {
            Some((generation, permille)) => {
                longest(&self.ranges(id, group, generation)?).map(|range| (range, permille))
            }
            None => None,
        };
        let canary = canary.filter(|(range, _)| *range != active);
        let members = u16::try_from(group.len()).unwrap_or(u16::MAX);
        let plan = Plan::new(members, live, active, canary);
        plan.map(Some).map_err(|source| SteerError::Plan { address: address(), source })
    }

    fn ranges(&self, id: ListenerId, group: &Group, generation: Generation) -> Result<Vec<Range>, SteerError> {
        let address = || group.address().to_string();
        let mut ranges = Vec::new();
        for holding in self.holdings.get(&generation).map(Vec::as_slice).unwrap_or_default() {
            let Share::Members { first, .. } = holding.share else { continue };
            let mut number = first;
            for run in holding.runs_of(id) {
                let member = u16::try_from(number).ok().and_then(MemberId::new);
                let tag = member.and_then(|member| Tag::new(generation, member));
                let tag = tag.ok_or_else(|| SteerError::Generation { address: address(), generation })?;
                let (len, position) = (saturated(run.len), saturated(run.position));
                let range = Range::new(tag, len, position);
                ranges.push(range.map_err(|source| SteerError::Range { address: address(), source })?);
                number += run.len;
            }
        }
        Ok(ranges)
    }

    fn group_mut(&mut self, id: ListenerId) -> Option<&mut Group> {
        match &mut self.listeners.get_mut(&id)?.socket {
            Listening::Quic(group) => Some(group),
            Listening::Tcp(_) | Listening::Unix(_) => None,
        }
    }
}

/// A socket of someone else at one of our addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Our address.
    pub address: SocketAddr,
    /// Whose it is.
    pub holder: Holder,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, holder } = self;
        write!(f, "{holder} has a socket of its own at {address} and takes packets from the service; stop it")
    }
}

fn longest(ranges: &[Range]) -> Option<Range> {
    ranges.iter().copied().max_by_key(|range| (range.members(), std::cmp::Reverse(range.position())))
}

fn same_positions(one: &Range, other: &Range) -> bool {
    let end = |range: &Range| u32::from(range.position()) + u32::from(range.members());
    u32::from(one.position()) < end(other) && u32::from(other.position()) < end(one)
}

/// A number that is too large is refused by [`Range::new`].
fn saturated(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
