//! Runs: neighbouring members of one group, and where the next one fits.

/// Neighbouring positions of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first position.
    pub(super) position: usize,
    /// How many; at least 1.
    pub(super) len: usize,
}

impl Run {
    pub(super) const fn end(self) -> usize {
        self.position + self.len
    }

    const fn overlaps(self, other: Self) -> bool {
        self.position < other.end() && other.position < self.end()
    }

    pub(super) fn positions(self) -> std::ops::Range<usize> {
        self.position..self.end()
    }
}

/// Where `len` (at least 1) members go in a group of `members` sockets of which `held` are taken: the smallest gap that
/// is large enough, else the end, which may lie beyond the last socket: those from `members` on are to be bound.
///
/// The smallest gap keeps large ones whole, so that a group stops growing once generations come and go.
pub(super) fn place(members: usize, held: &[Run], len: usize) -> Run {
    let mut held = held.to_vec();
    held.sort_unstable_by_key(|run| run.position);
    let mut best: Option<Run> = None;
    let mut from = 0;
    for run in held {
        let gap = run.position.saturating_sub(from);
        if gap >= len && best.is_none_or(|best| gap < best.len) {
            best = Some(Run { position: from, len: gap });
        }
        from = from.max(run.end());
    }
    let tail = members.saturating_sub(from);
    if tail >= len && best.is_none_or(|best| tail < best.len) {
        best = Some(Run { position: from, len: tail });
    }
    Run { position: best.map_or(from, |gap| gap.position), len }
}

/// The runs with which a successor takes over `dead`: its first `len` members, and if it had fewer, more of them right
/// behind where nobody is, else where they fit.
pub(super) fn take_over(members: usize, held: &[Run], dead: &[Run], len: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut missing = len;
    for run in dead {
        let len = run.len.min(missing);
        if len > 0 {
            runs.push(Run { position: run.position, len });
            missing -= len;
        }
    }
    if missing == 0 {
        return runs;
    }
    if let Some(last) = runs.last_mut() {
        let behind = Run { position: last.end(), len: missing };
        if behind.position <= members && !held.iter().any(|run| run.overlaps(behind)) {
            last.len += missing;
            return runs;
        }
    }
    runs.push(place(members, held, missing));
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn run(position: usize, len: usize) -> Run {
        Run { position, len }
    }

    #[test]
    fn a_run_goes_into_the_smallest_gap_that_holds_it_else_to_the_end() {
        let held = [run(4, 2), run(12, 2)];
        for (members, len, position) in [
            (0, 4, 0),   // an empty group
            (14, 4, 0),  // the gap of 4, not that of 6
            (14, 5, 6),  // the gap of 6
            (14, 7, 14), // no gap
            (17, 3, 14), // free sockets at the end
            (17, 5, 6),  // a gap rather than growth
            (17, 7, 14), // free sockets at the end, and 4 more
        ] {
            let held: &[Run] = if members == 0 { &[] } else { &held };
            assert_eq!(place(members, held, len), run(position, len), "{len} in {members}");
        }
    }

    #[test]
    fn a_successor_gets_the_same_members_and_the_difference() {
        let dead = [run(4, 4)];
        for (held, members, len, expected) in [
            (vec![run(4, 4)], 8, 4, vec![run(4, 4)]),
            (vec![run(4, 4)], 8, 2, vec![run(4, 2)]),
            (vec![run(4, 4)], 8, 6, vec![run(4, 6)]),
            (vec![run(4, 4), run(8, 4)], 12, 6, vec![run(4, 4), run(0, 2)]),
            (vec![run(0, 4), run(4, 4), run(8, 4)], 12, 6, vec![run(4, 4), run(12, 2)]),
        ] {
            assert_eq!(take_over(members, &held, &dead, len), expected, "{held:?} {len}");
        }
    }

    proptest! {
        #[test]
        fn a_run_never_overlaps_and_never_leaves_a_hole_before_the_end(
            lens in prop::collection::vec((1usize..6, any::<bool>()), 0..12), free in 0usize..6, len in 1usize..9,
        ) {
            let mut held = Vec::new();
            let mut end = 0;
            for (len, taken) in lens {
                if taken {
                    held.push(run(end, len));
                }
                end += len;
            }
            let members = end + free;
            let placed = place(members, &held, len);
            prop_assert!(placed.position <= members);
            prop_assert!(!held.iter().any(|run| run.overlaps(placed)));
            let fits = |start: usize| {
                start + len <= members && !held.iter().any(|run| run.overlaps(Run { position: start, len }))
            };
            prop_assert_eq!(placed.end() <= members, (0..=members).any(fits), "grows only when it must");
        }
    }
}
