//! What a steering program is built from: checked, so that [`super::program()`] can't fail.

use protocol::cid::{MAX_MEMBERS, Tag};
use protocol::message::Generation;

/// Live ranges in one plan, at most. 16 generations can be live; four ranges each leave room for members that were
/// issued in pieces. The largest program then still fits the kernel's old default of `net.core.optmem_max` (20 480).
pub const MAX_RANGES: usize = 64;

/// The whole: a share is given in thousandths.
pub(super) const PERMILLE: u16 = 1_000;

/// Consecutive members of one generation at consecutive positions of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    first: Tag,
    members: u16,
    position: u16,
}

impl Range {
    /// `members` members (at least 1) from the one with the tag `first`, which sits at `position` of its group
    /// (counted from 0, in the order of binding).
    ///
    /// # Errors
    /// The range is empty, or its last member's number or position does not exist.
    pub const fn new(first: Tag, members: u16, position: u16) -> Result<Self, RangeError> {
        if members == 0 {
            return Err(RangeError::Empty);
        }
        let number = first.member().get();
        if number as usize + members as usize > MAX_MEMBERS {
            return Err(RangeError::Members { first: number, members });
        }
        if position as usize + members as usize > MAX_MEMBERS {
            return Err(RangeError::Positions { first: position, members });
        }
        Ok(Self { first, members, position })
    }

    /// The tag of its first member.
    #[must_use]
    pub const fn first(&self) -> Tag {
        self.first
    }

    /// The number of its members, at least 1.
    #[must_use]
    pub const fn members(&self) -> u16 {
        self.members
    }

    /// The position of its first member in the group, from 0.
    #[must_use]
    pub const fn position(&self) -> u16 {
        self.position
    }

    /// Whose members they are.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.first.generation()
    }

    /// The position of the member that `tag` names, if it is one of these.
    #[must_use]
    pub fn position_of(&self, tag: Tag) -> Option<u16> {
        let offset = tag.get().checked_sub(self.first.get())?;
        u16::try_from(offset).ok().filter(|&offset| offset < self.members).map(|offset| self.position + offset)
    }

    fn shares_tags(&self, other: &Self) -> bool {
        overlap(self.first.get(), other.first.get(), self.members, other.members)
    }

    fn shares_positions(&self, other: &Self) -> bool {
        overlap(self.position.into(), other.position.into(), self.members, other.members)
    }
}

/// Whether `a .. a + a_len` and `b .. b + b_len` have something in common.
fn overlap(a: u32, b: u32, a_len: u16, b_len: u16) -> bool {
    a < b + u32::from(b_len) && b < a + u32::from(a_len)
}

/// Why a [`Range`] can't exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// It has no members.
    #[error("a range needs at least one member")]
    Empty,
    /// Its last member would have a number that does not fit into a connection ID.
    #[error("{members} members from number {first} on: the last number is {}", MAX_MEMBERS - 1)]
    Members {
        /// The number of the first member.
        first: u16,
        /// How many.
        members: u16,
    },
    /// No group is that large.
    #[error("{members} members from position {first} on: a group has at most {MAX_MEMBERS}")]
    Positions {
        /// The position of the first member.
        first: u16,
        /// How many.
        members: u16,
    },
}

/// Who gets which packets of one group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    live: Vec<Range>,
    active: Range,
    canary: Option<(Range, u16)>,
}

impl Plan {
    /// A plan for a group of `group` sockets. A packet whose ID is of one of the `live` ranges goes to its member; of
    /// all others, the `canary` gets the stated share (in permille of the clients, 0 to 1 000), `active` the rest.
    ///
    /// The active generation may be a dead one, which has no live range: its packets then wait in its sockets for the
    /// successor, whose live range may sit at the very same positions.
    ///
    /// # Errors
    /// A range lies outside the group, two live ones claim the same member or position, there are more than
    /// [`MAX_RANGES`], the active one is of a live generation but not its range, the canary is not a live range other
    /// than the active one, or its share is more than the whole.
    pub fn new(group: u16, live: Vec<Range>, active: Range, canary: Option<(Range, u16)>) -> Result<Self, PlanError> {
        if live.len() > MAX_RANGES {
            return Err(PlanError::TooManyRanges { ranges: live.len() });
        }
        if let Some(range) = live.iter().chain([&active]).find(|range| range.position + range.members > group) {
            return Err(PlanError::OutsideGroup { generation: range.generation(), group });
        }
        for (index, range) in live.iter().enumerate() {
            let clash = |other: &&Range| other.shares_tags(range) || other.shares_positions(range);
            if let Some(other) = live.iter().skip(index + 1).find(clash) {
                return Err(PlanError::Overlap { one: range.generation(), other: other.generation() });
            }
        }
        let alive = live.iter().any(|range| range.generation() == active.generation());
        if alive && !live.contains(&active) {
            return Err(PlanError::ActiveNotLive { generation: active.generation() });
        }
        if let Some((range, permille)) = canary {
            if !live.contains(&range) || range == active {
                return Err(PlanError::Canary { generation: range.generation() });
            }
            if permille > PERMILLE {
                return Err(PlanError::Share { permille });
            }
        }
        Ok(Self { live, active, canary: canary.filter(|&(_, permille)| permille > 0) })
    }

    /// Ranges whose IDs lead to their own members.
    #[must_use]
    pub fn live(&self) -> &[Range] {
        &self.live
    }

    /// Gets what has no ID of a live range.
    #[must_use]
    pub const fn active(&self) -> Range {
        self.active
    }

    /// Gets a share of what would go to the active one, in permille, 1 to 1 000.
    #[must_use]
    pub const fn canary(&self) -> Option<(Range, u16)> {
        self.canary
    }
}

/// Why a [`Plan`] can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The program would grow beyond what the kernel takes by default.
    #[error("{ranges} live ranges in one group; at most {MAX_RANGES} are possible")]
    TooManyRanges {
        /// How many.
        ranges: usize,
    },
    /// A position that the group does not have: the kernel would spread such packets over all its sockets.
    #[error("generation {generation} has a position beyond the {group} sockets of the group")]
    OutsideGroup {
        /// Whose range.
        generation: Generation,
        /// Sockets in the group.
        group: u16,
    },
    /// A member or position is claimed twice.
    #[error("generations {one} and {other} claim the same member or position")]
    Overlap {
        /// One.
        one: Generation,
        /// The other (the same, when its own ranges overlap).
        other: Generation,
    },
    /// The active range is not the one under which its generation is live.
    #[error("generation {generation} is live, but not with the range that is to be active")]
    ActiveNotLive {
        /// Whose range.
        generation: Generation,
    },
    /// The canary has to be live and not the active one.
    #[error("generation {generation} can't be the canary: it is active, or not live with that range")]
    Canary {
        /// Whose range.
        generation: Generation,
    },
    /// More than everything.
    #[error("a canary share of {permille} permille is more than the whole")]
    Share {
        /// What was asked for.
        permille: u16,
    },
}
