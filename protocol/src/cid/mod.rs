//! Connection IDs that name the process they belong to: the one layout for the side that mints them and the side that
//! steers by them.
//!
//! ```text
//! 8 bytes on the wire = one Speck64/128 block, network byte order:
//!
//!    high word (first 4 bytes)            low word (last 4 bytes)
//!   |generation:16|member:12|counter:4|  |counter:32|                 before encryption
//!   |--------- tag: 28 -----|
//! ```
//!
//! The tag is also the marker that tells our IDs from those that a client invented: of 2^28 tags only those of the live
//! members are ours. Consecutive members of one generation have consecutive tags, so a reader tests a whole generation
//! with one subtraction and one comparison. `docs/design/connection-ids.md` has the arithmetic behind the widths.

#[cfg(feature = "quinn")]
mod budget;
#[cfg(feature = "quinn")]
mod generator;
mod speck;

#[cfg(feature = "quinn")]
pub use generator::{Generator, HeirSet};

use crate::message::Generation;

/// The length of a connection ID in bytes.
pub const CID_LEN: usize = 8;
/// The highest generation number: 16 bits of a connection ID. The lowest is 1.
pub const MAX_GENERATION: u32 = 65_535;
/// How many member numbers there are: 12 bits of a connection ID.
pub const MAX_MEMBERS: usize = 4_096;
/// How many IDs one member can mint in one generation: 36 bits of a connection ID.
pub const MAX_COUNTER: u64 = 1 << COUNTER_BITS;

/// How far to shift the decrypted high word right for the tag: the bits of the counter that share the word with it.
pub const TAG_SHIFT: u32 = COUNTER_BITS - u32::BITS;

const MEMBER_BITS: u32 = 12;
const COUNTER_BITS: u32 = 36;

/// The number of one UDP socket within its generation, from 0 and below [`MAX_MEMBERS`], over all of its listeners: numbers
/// per listener would let two listeners of one generation mint the same ID with the same reset token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(u16);

impl MemberId {
    /// `None`: the number is not below [`MAX_MEMBERS`].
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if (number as usize) < MAX_MEMBERS { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Whose an ID is: 28 bits, generation before member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u32);

impl Tag {
    /// `None`: the generation is not within 1..=[`MAX_GENERATION`].
    #[must_use]
    pub const fn new(generation: Generation, member: MemberId) -> Option<Self> {
        if generation.0 == 0 || generation.0 > MAX_GENERATION {
            return None;
        }
        Some(Self(generation.0 << MEMBER_BITS | member.0 as u32))
    }

    /// The generation; 0 (which is never issued) is possible in an ID that is not ours.
    #[must_use]
    pub const fn generation(self) -> Generation {
        Generation(self.0 >> MEMBER_BITS)
    }

    /// The member.
    #[must_use]
    pub const fn member(self) -> MemberId {
        #[expect(clippy::cast_possible_truncation, reason = "masked to 12 bits")]
        MemberId((self.0 & (MAX_MEMBERS as u32 - 1)) as u16)
    }

    /// The 28 bits: generation × 4 096 + member.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What a connection ID says, once decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    tag: Tag,
    counter: u64,
}

impl ConnectionId {
    /// `None`: the counter is not below [`MAX_COUNTER`].
    #[must_use]
    pub const fn new(tag: Tag, counter: u64) -> Option<Self> {
        if counter < MAX_COUNTER { Some(Self { tag, counter }) } else { None }
    }

    /// Whose it is.
    #[must_use]
    pub const fn tag(self) -> Tag {
        self.tag
    }

    /// The how-manieth of its member in its generation, from 0.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.counter
    }
}

/// Turns what an ID says into the 8 bytes on the wire and back.
///
/// Encrypted, so that nobody outside can tell two IDs of one connection from any two IDs (RFC 9000 section 5.1).
#[derive(Clone)]
pub struct Cipher {
    round_keys: speck::RoundKeys,
}

impl Cipher {
    /// From the key in [`crate::keys::ChildKeys`].
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        Self { round_keys: speck::expand(key) }
    }

    /// Encrypts.
    #[must_use]
    pub fn seal(&self, id: ConnectionId) -> [u8; CID_LEN] {
        let plain = u64::from(id.tag.0) << COUNTER_BITS | id.counter;
        speck::encrypt(&self.round_keys, plain).to_be_bytes()
    }

    /// Decrypts. Any 8 bytes decrypt to something: whether it is ours is for the reader to judge by the tag.
    #[must_use]
    pub fn open(&self, bytes: [u8; CID_LEN]) -> ConnectionId {
        let plain = speck::decrypt(&self.round_keys, u64::from_be_bytes(bytes));
        let tag = Tag((plain >> COUNTER_BITS) as u32);
        ConnectionId { tag, counter: plain & (MAX_COUNTER - 1) }
    }

    /// For a reader that decrypts elsewhere (the steering program), in the order of encryption: a decrypting round
    /// `i` from 26 down to 0 is `low = (high ^ low) rotated right by 3; high = ((high ^ key[i]) - low) rotated left
    /// by 8`. The tag is then `high >> TAG_SHIFT`.
    #[must_use]
    pub fn round_keys(&self) -> &[u32; speck::ROUNDS] {
        &self.round_keys
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher(..)")
    }
}

#[cfg(test)]
mod tests;
