//! Connection IDs for quinn.

use super::budget::Budget;
use super::{CID_LEN, Cipher, ConnectionId, MAX_COUNTER, Tag};
use crate::keys::ResetKey;
use crate::message::Generation;
use quinn_proto::{ConnectionIdGenerator, InvalidCid};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The dead generations that this process answers for, with their reset keys. Clones share one set, which the `heir`
/// message extends while endpoints run.
#[derive(Clone, Debug, Default)]
pub struct HeirSet(Arc<RwLock<BTreeMap<Generation, ResetKey>>>);

impl HeirSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Answer for these too, from the next packet on. None of them may be live.
    pub fn extend(&self, generations: impl IntoIterator<Item = (Generation, ResetKey)>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(generations);
    }

    /// As [`Self::extend`] with one. Whether it is new.
    pub fn insert(&self, generation: Generation, key: ResetKey) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(generation, key).is_none()
    }

    /// Whether this process answers for that generation.
    #[must_use]
    pub fn contains(&self, generation: Generation) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&generation)
    }

    /// The reset key of a dead generation.
    #[must_use]
    pub fn get(&self, generation: Generation) -> Option<ResetKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&generation).cloned()
    }
}

/// Mints the connection IDs of one member in one generation, and tells quinn which unknown ones to answer.
///
/// Its counter starts at 0 and is shared by its clones, so make one per member and generation and clone that.
#[derive(Clone, Debug)]
pub struct Generator {
    cipher: Arc<Cipher>,
    tag: Tag,
    next: Arc<AtomicU64>,
    heirs: HeirSet,
    resets: Arc<Budget>,
}

impl Generator {
    /// Of the generation and member that the tag says.
    #[must_use]
    pub fn new(cipher: Arc<Cipher>, tag: Tag, heirs: HeirSet) -> Self {
        Self { cipher, tag, next: Arc::default(), heirs, resets: Arc::new(Budget::new()) }
    }

    /// How many it has minted: the counters below this are in use, or were.
    #[must_use]
    pub fn minted(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.next)
    }
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> quinn_proto::ConnectionId {
        let counter = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(id) = ConnectionId::new(self.tag, counter) else { out_of_ids(self.tag) };
        quinn_proto::ConnectionId::new(&self.cipher.seal(id))
    }

    /// Ok makes quinn answer an unknown ID with a stateless reset, so it is Ok only where that reset is ours to send:
    /// for what this member has minted and for the dead generations it is heir to. Ok for a live other member would let
    /// one misrouted packet reset a live connection, and for an ID that is yet to be minted a connection to come.
    fn validate(&self, id: &quinn_proto::ConnectionId) -> Result<(), InvalidCid> {
        let bytes = <[u8; CID_LEN]>::try_from(&id[..]).map_err(|_| InvalidCid)?;
        let id = self.cipher.open(bytes);
        let ours = id.tag() == self.tag && id.counter() < self.next.load(Ordering::Relaxed);
        let answered = ours || self.heirs.contains(id.tag().generation());
        if answered && self.resets.take(Instant::now()) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        CID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// A repeated ID would hand one client the packets, and the reset token, of another; and quinn has no way to hear "no".
/// So the process ends, its supervisor starts another, and that one counts from 0 under a new generation number.
#[cold]
#[expect(clippy::print_stderr, reason = "the last words of the process; a log may still be in a buffer")]
fn out_of_ids(tag: Tag) -> ! {
    eprintln!(
        "generation {} used up the {MAX_COUNTER} connection IDs of member {}: ending, so that none repeats",
        tag.generation(),
        tag.member().get()
    );
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::MemberId;
    use crate::keys::{BootId, Secret};

    fn cipher() -> Arc<Cipher> {
        Arc::new(Cipher::new(&[7; 16]))
    }

    fn generator(generation: u32, member: u16, heirs: &HeirSet) -> Generator {
        let tag = Tag::new(Generation(generation), MemberId::new(member).unwrap()).unwrap();
        Generator::new(cipher(), tag, heirs.clone())
    }

    #[test]
    fn minted_ids_count_up_from_zero_and_clones_share_the_count() {
        let mut generator = generator(3, 5, &HeirSet::new());
        let mut clone = generator.clone();
        for counter in 0..1_000 {
            let minted = if counter % 3 == 0 { clone.generate_cid() } else { generator.generate_cid() };
            let bytes = <[u8; CID_LEN]>::try_from(&minted[..]).unwrap();
            let id = cipher().open(bytes);
            assert_eq!((id.tag(), id.counter()), (generator.tag, counter));
        }
    }

    /// Yes to a live other member would reset its connections.
    #[test]
    fn only_this_member_and_inherited_generations_are_valid() {
        let heirs = HeirSet::new();
        let mut ours = generator(9, 4, &heirs);
        let mut same = ours.clone();
        let mut neighbour = generator(9, 5, &heirs);
        let mut predecessor = generator(8, 4, &heirs);
        let dead = predecessor.generate_cid();

        assert!(ours.validate(&same.generate_cid()).is_ok());
        assert!(same.validate(&ours.generate_cid()).is_ok());
        assert!(ours.validate(&neighbour.generate_cid()).is_err());
        assert!(ours.validate(&dead).is_err());

        heirs.extend([(
            Generation(8),
            Secret::from_bytes([1; 32]).reset_key(&BootId::from_bytes([2; 16]), Generation(8)),
        )]);
        assert!(ours.validate(&dead).is_ok(), "a set that grows reaches endpoints that already run");
        assert!(ours.validate(&neighbour.generate_cid()).is_err());
    }

    /// Its token would be known to whoever asked when a connection gets the ID.
    #[test]
    fn an_id_that_is_yet_to_be_minted_is_not_valid() {
        let mut ours = generator(9, 4, &HeirSet::new());
        let mut later = generator(9, 4, &HeirSet::new());
        let ids: Vec<_> = (0..3).map(|_| later.generate_cid()).collect();
        ours.generate_cid();
        assert!(ours.validate(&ids[0]).is_ok());
        assert!(ours.validate(&ids[1]).is_err());
        let last = ConnectionId::new(ours.tag, MAX_COUNTER - 1).unwrap();
        assert!(ours.validate(&quinn_proto::ConnectionId::new(&cipher().seal(last))).is_err());
    }

    #[test]
    fn an_id_of_another_length_is_not_valid() {
        let ours = generator(9, 4, &HeirSet::new());
        for length in [0, 7, 9, 20] {
            assert!(ours.validate(&quinn_proto::ConnectionId::new(&vec![0; length])).is_err(), "{length} bytes");
        }
    }
}
