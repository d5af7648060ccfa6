//! What a steering program means, in plain Rust.

use super::plan::{Plan, Range};
use super::program::last_of_share;
use super::source::SourceHash;
use protocol::cid::{CID_LEN, Cipher};
use std::net::SocketAddr;

/// The position within the group that gets a packet with this UDP payload from this source.
#[must_use]
pub fn position(cipher: &Cipher, plan: &Plan, payload: &[u8], source: SocketAddr) -> u16 {
    if let Some(id) = connection_id(payload) {
        let tag = cipher.open(id).tag();
        if let Some(position) = plan.live().iter().find_map(|range| range.position_of(tag)) {
            return position;
        }
    }
    let hash = SourceHash::new(cipher).of(source);
    match plan.canary() {
        Some((range, permille)) if hash <= last_of_share(permille) => chosen(range, hash),
        Some(_) | None => chosen(plan.active(), hash),
    }
}

/// The destination connection ID, if the packet has one of our length.
#[must_use]
pub fn connection_id(payload: &[u8]) -> Option<[u8; CID_LEN]> {
    let (first, rest) = payload.split_first()?;
    if first & 0x80 == 0 {
        return rest.first_chunk().copied();
    }
    let (_version, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first()?;
    if usize::from(*length) == CID_LEN { rest.first_chunk().copied() } else { None }
}

fn chosen(range: Range, hash: u32) -> u16 {
    let offset = ((hash & 0xffff) * u32::from(range.members())) >> 16;
    range.position() + u16::try_from(offset).unwrap_or_default()
}
