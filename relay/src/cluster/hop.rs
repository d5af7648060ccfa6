//! The hop id: what this process is called in the hop chains of routes.
//!
//! A relay that finds its own hop in a chain drops the route as a loop. Two generations of one node are peers of each
//! other while both live, so they must not share one: every route between them would look like a loop to the other.

use moq_net::Hop;
use protocol::message::Generation;
use sha2::{Digest, Sha256};
use std::num::NonZeroU64;

/// The largest id, by the width of a QUIC variable-length integer (RFC 9000 §16).
pub const MAX_BASE: u64 = (1 << 62) - 1;

/// Derived ids are this wide: older JavaScript clients read a hop id as a number, which is exact up to 2^53.
const DERIVED_BITS: u32 = 53;

/// A configured `cluster.id`: from 1 to [`MAX_BASE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base(NonZeroU64);

impl Base {
    /// `None`: out of range.
    #[must_use]
    pub fn new(id: u64) -> Option<Self> {
        NonZeroU64::new(id).filter(|id| id.get() <= MAX_BASE).map(Self)
    }
}

/// The hop of a process. `generation` is its number under a supervisor, `None` when it runs alone.
///
/// Without a base it is random. Alone it is the base itself. A generation's is a hash of base and number, not a sum:
/// nodes are numbered one after the other, and a neighbour's id must not come out of it.
#[must_use]
pub fn hop(base: Option<Base>, generation: Option<Generation>) -> Hop {
    let Some(Base(base)) = base else { return Hop::random() };
    let id = match generation {
        None => base.get(),
        Some(Generation(generation)) => derived(base, generation),
    };
    // Both are in range by construction.
    Hop::new(id).unwrap_or_else(|_| Hop::random())
}

fn derived(base: NonZeroU64, generation: u32) -> u64 {
    let mut hash = Sha256::new();
    hash.update(b"moq-relay hop");
    hash.update(base.get().to_be_bytes());
    hash.update(generation.to_be_bytes());
    let digest = hash.finalize();
    let first = digest.iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte));
    // Zero names nobody.
    (first >> (u64::BITS - DERIVED_BITS)).max(1)
}

#[cfg(test)]
mod tests {
    use super::{Base, MAX_BASE, hop};
    use protocol::message::Generation;
    use std::collections::BTreeSet;

    #[test]
    fn a_base_is_what_the_wire_can_carry() {
        for (id, good) in [(0, false), (1, true), (MAX_BASE, true), (MAX_BASE + 1, false), (u64::MAX, false)] {
            assert_eq!(Base::new(id).is_some(), good, "{id}");
        }
    }

    /// Live generations and neighbours with consecutive ids must all be different hops.
    #[test]
    fn every_generation_of_every_node_is_another_hop() {
        let mut seen = BTreeSet::new();
        for base in (1..=50).chain([MAX_BASE - 1, MAX_BASE]) {
            let base = Base::new(base).expect("in range");
            assert!(seen.insert(hop(Some(base), None).id()));
            for generation in 1..=50 {
                let id = hop(Some(base), Some(Generation(generation))).id();
                assert!((1..1 << 53).contains(&id), "{id}");
                assert!(seen.insert(id), "{base:?} {generation}");
                assert_eq!(id, hop(Some(base), Some(Generation(generation))).id(), "the same when asked again");
            }
        }
    }

    #[test]
    fn without_a_base_it_is_random_and_alone_it_is_the_base() {
        assert_ne!(hop(None, None), hop(None, None));
        assert_eq!(hop(Base::new(7), None).id(), 7);
    }
}
