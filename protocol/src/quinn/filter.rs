//! Which datagrams belong to another member or generation, though the kernel delivered them here.
//!
//! UDP_GRO can merge datagrams of one client socket into one buffer whatever member each is for, and a switch can race
//! with a packet. `docs/design/connection-ids.md` has the reasons and the arithmetic of what is decided here.

use crate::cid::{CID_LEN, Cipher, HeirSet, MAX_GENERATION, MAX_MEMBERS, Tag};
use crate::message::Generation;
use quinn::udp::RecvMeta;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// How far a generation may be from ours to be believed. Generations further apart are live together only after as many
/// failed upgrades; their packets are left to quinn, which keeps silent about them.
const GENERATIONS: u32 = 128;
/// Members below this are always believed, and those below four times our own number: as many as the default limit of
/// four live generations of our size has.
const MEMBERS: usize = 64;

/// Tells foreign datagrams from ours and from those of nobody.
#[derive(Debug)]
pub(super) struct Filter {
    cipher: Arc<Cipher>,
    own: Tag,
    heirs: HeirSet,
    generations: RangeInclusive<u32>,
    members: usize,
}

impl Filter {
    pub(super) fn new(cipher: Arc<Cipher>, own: Tag, heirs: HeirSet) -> Self {
        let generation = own.generation().0;
        let generations =
            generation.saturating_sub(GENERATIONS).max(1)..=(generation + GENERATIONS).min(MAX_GENERATION);
        let members = (4 * (usize::from(own.member().get()) + 1)).clamp(MEMBERS, MAX_MEMBERS);
        Self { cipher, own, heirs, generations, members }
    }

    /// Takes the foreign datagrams out of one receive buffer, which GRO may have filled with several, `stride` bytes
    /// apart; returns how many came. Of each that is for an established connection of this member, `own` gets the ID and its
    /// counter; of each foreign one, `foreign` gets the generation.
    pub(super) fn sift(
        &self,
        buffer: &mut [u8],
        meta: &mut RecvMeta,
        mut own: impl FnMut(u64, [u8; CID_LEN]),
        mut foreign: impl FnMut(Generation),
    ) -> u64 {
        let length = meta.len.min(buffer.len());
        let stride = if meta.stride == 0 { length } else { meta.stride };
        let (mut kept, mut read, mut came) = (0, 0, 0);
        while read < length {
            let end = length.min(read + stride);
            came += 1;
            let keep = match self.whose(&buffer[read..end]) {
                Whose::Own { counter, id } => {
                    own(counter, id);
                    true
                }
                Whose::Unknown => true,
                Whose::Foreign(generation) => {
                    foreign(generation);
                    false
                }
            };
            if keep {
                if kept != read {
                    buffer.copy_within(read..end, kept);
                }
                kept += end - read;
            }
            read = end;
        }
        meta.len = kept;
        came
    }

    fn whose(&self, datagram: &[u8]) -> Whose {
        let Some(id) = server_id(datagram) else { return Whose::Unknown };
        let said = self.cipher.open(id);
        let tag = said.tag();
        let plausible =
            self.generations.contains(&tag.generation().0) && usize::from(tag.member().get()) < self.members;
        if tag == self.own {
            let established = datagram.first().is_some_and(|first| first & LONG == 0);
            if established { Whose::Own { counter: said.counter(), id } } else { Whose::Unknown }
        } else if plausible && !self.heirs.contains(tag.generation()) {
            Whose::Foreign(tag.generation())
        } else {
            Whose::Unknown
        }
    }
}

/// Whose a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Of an established connection of this member: the how-manieth ID it minted.
    Own { counter: u64, id: [u8; CID_LEN] },
    /// Of another member or generation: of this one.
    Foreign(Generation),
    /// Anybody's: for quinn to judge.
    Unknown,
}

/// The destination ID of a datagram that can only belong to a connection that some server process has begun (RFC 9000
/// section 17): short headers, and long ones that are not Initial. An Initial may be a new client with an ID of its own
/// making, or the answer to a Retry of a process that is dead by now; whoever gets it can serve it.
fn server_id(datagram: &[u8]) -> Option<[u8; CID_LEN]> {
    let (&first, rest) = datagram.split_first()?;
    if first & LONG == 0 {
        return rest.first_chunk().copied();
    }
    let (version, rest) = rest.split_first_chunk()?;
    let (&length, rest) = rest.split_first()?;
    // The type bits mean the same in version 1 and in the drafts that quinn speaks; in another version an Initial may
    // look different.
    let known = matches!(u32::from_be_bytes(*version), 1 | 0xff00_001d..=0xff00_0022);
    let initial = first & TYPE == 0;
    if known && !initial && usize::from(length) == CID_LEN { rest.first_chunk().copied() } else { None }
}

/// The header form bit.
const LONG: u8 = 0x80;
/// The type bits of a long header; 0 is Initial.
const TYPE: u8 = 0x30;

#[cfg(test)]
mod tests;
