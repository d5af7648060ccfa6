//! Whose a process is that left its generation's process group (setsid(2)).
//!
//! The kernel forgets the parent of an orphan, so this is noted while it can be seen: what descends from a generation's
//! process is that generation's. An orphan that nobody has seen before comes from one of the generations that live when
//! it is first seen, since whoever descends from one that is dead was noted at its end; which one is not known, so it
//! counts as everybody's. One that is there while none lives is nobody's: whoever executed the supervisor may have had
//! children.

use protocol::message::Generation;
use std::collections::{BTreeSet, HashMap};

/// The processes of the system.
pub(super) trait Tree {
    /// The children of a process, those that have ended and wait to be reaped included.
    fn children(&self, pid: u32) -> Vec<u32>;
    /// When a process began, in clock ticks since the boot; `None`: there is none of that number.
    fn start(&self, pid: u32) -> Option<u64>;
}

/// A process, whoever gets its number after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    /// Its number.
    pub(super) pid: u32,
    /// When it began, as [`Tree::start`] says it.
    pub(super) start: u64,
}

/// Where a process comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// One of these; none is left when all have ended.
    OneOf(BTreeSet<Generation>),
    Nobody,
}

impl Origin {
    /// Whether it says at least as much as the other.
    fn is_as_exact_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::OneOf(these), Self::OneOf(those)) => these.len() <= those.len(),
            (Self::OneOf(_) | Self::Nobody, Self::Nobody) => true,
            (Self::Nobody, Self::OneOf(_)) => false,
        }
    }
}

/// The origin of each process below us, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Lineage(HashMap<Process, Origin>);

impl Lineage {
    /// Looks at everything below the processes of the generations that live, and below the `orphans`: those of our
    /// children that are neither generations nor commands.
    pub(super) fn look(&mut self, tree: &impl Tree, live: &[(Generation, u32)], orphans: Orphans<'_>) {
        let before = std::mem::take(&mut self.0);
        for (generation, pid) in live {
            let origin = Origin::OneOf(BTreeSet::from([*generation]));
            for child in tree.children(*pid) {
                self.note(tree, &before, child, &origin);
            }
        }
        let everybody = if live.is_empty() {
            Origin::Nobody
        } else {
            Origin::OneOf(live.iter().map(|(generation, _)| *generation).collect())
        };
        // After the others: one whose parent has just ended is found here.
        for orphan in (orphans.list)() {
            let Some(process) = process(tree, orphan) else { continue };
            match before.get(&process) {
                Some(origin) => self.note(tree, &before, orphan, origin),
                None if orphans.may_be_anybodys => {}
                None => self.note(tree, &before, orphan, &everybody),
            }
        }
    }

    /// Notes a process and all below it. What was known before is at least as exact.
    fn note(&mut self, tree: &impl Tree, before: &HashMap<Process, Origin>, pid: u32, origin: &Origin) {
        let mut open = vec![pid];
        while let Some(pid) = open.pop() {
            let Some(process) = process(tree, pid) else { continue };
            if self.0.contains_key(&process) {
                continue;
            }
            let origin = before.get(&process).filter(|known| known.is_as_exact_as(origin)).unwrap_or(origin);
            self.0.insert(process, origin.clone());
            open.extend(tree.children(pid));
        }
    }

    /// This generation has ended.
    pub(super) fn ended(&mut self, generation: Generation) {
        for origin in self.0.values_mut() {
            match origin {
                Origin::OneOf(generations) => {
                    generations.remove(&generation);
                }
                Origin::Nobody => {}
            }
        }
    }

    /// Those of which no generation is left that they may come from.
    pub(super) fn left_behind(&self) -> Vec<Process> {
        let left = |origin: &Origin| match origin {
            Origin::OneOf(generations) => generations.is_empty(),
            Origin::Nobody => false,
        };
        self.0.iter().filter(|(_, origin)| left(origin)).map(|(process, _)| *process).collect()
    }
}

/// Our children that are neither generations nor commands.
pub(super) struct Orphans<'a> {
    /// Lists them.
    pub(super) list: &'a dyn Fn() -> Vec<u32>,
    /// As PID 1 we get those of every process of the container, also of one that an operator has started: then one that
    /// nobody has seen before is left alone.
    pub(super) may_be_anybodys: bool,
}

fn process(tree: &impl Tree, pid: u32) -> Option<Process> {
    tree.start(pid).map(|start| Process { pid, start })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Children by parent; 1 is the supervisor, and a process began at ten times its number unless said otherwise.
    #[derive(Default)]
    struct Fake {
        children: BTreeMap<u32, Vec<u32>>,
        began_again: BTreeSet<u32>,
    }

    impl Tree for Fake {
        fn children(&self, pid: u32) -> Vec<u32> {
            self.children.get(&pid).cloned().unwrap_or_default()
        }

        fn start(&self, pid: u32) -> Option<u64> {
            let there = self.children.values().flatten().any(|other| *other == pid);
            there.then(|| u64::from(pid) * 10 + u64::from(self.began_again.contains(&pid)))
        }
    }

    const OLD: (Generation, u32) = (Generation(1), 10);
    const NEW: (Generation, u32) = (Generation(2), 20);

    fn look(lineage: &mut Lineage, tree: &Fake, live: &[(Generation, u32)], may_be_anybodys: bool) {
        let leaders: Vec<u32> = live.iter().map(|(_, pid)| *pid).collect();
        let list = || -> Vec<u32> { tree.children(1).into_iter().filter(|pid| !leaders.contains(pid)).collect() };
        lineage.look(tree, live, Orphans { list: &list, may_be_anybodys });
    }

    fn pids(lineage: &Lineage) -> Vec<u32> {
        let mut pids: Vec<u32> = lineage.left_behind().iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        pids
    }

    fn tree<const N: usize>(children: [(u32, &[u32]); N]) -> Fake {
        let children = children.into_iter().map(|(parent, children)| (parent, children.to_vec())).collect();
        Fake { children, began_again: BTreeSet::new() }
    }

    #[test]
    fn what_was_seen_below_a_generation_is_left_behind_at_its_end_and_nothing_else() {
        let mut lineage = Lineage::default();
        look(&mut lineage, &tree([(1, &[10, 20]), (10, &[11]), (11, &[12]), (20, &[21])]), &[OLD, NEW], false);
        // The old one has ended: its child is an orphan.
        let after = tree([(1, &[20, 11]), (11, &[12]), (20, &[21])]);
        look(&mut lineage, &after, &[OLD, NEW], false);
        lineage.ended(OLD.0);
        assert_eq!(pids(&lineage), [11, 12]);
    }

    #[test]
    fn an_orphan_that_was_not_seen_before_waits_for_the_last_generation_that_it_may_come_from() {
        let mut lineage = Lineage::default();
        look(&mut lineage, &tree([(1, &[10, 20, 30])]), &[OLD, NEW], false);
        lineage.ended(NEW.0);
        assert!(pids(&lineage).is_empty());
        lineage.ended(OLD.0);
        assert_eq!(pids(&lineage), [30]);
    }

    #[test]
    fn an_orphan_that_is_older_than_a_generation_is_not_its() {
        let mut lineage = Lineage::default();
        look(&mut lineage, &tree([(1, &[10, 30])]), &[OLD], false);
        look(&mut lineage, &tree([(1, &[10, 20, 30])]), &[OLD, NEW], false);
        lineage.ended(OLD.0);
        assert_eq!(pids(&lineage), [30]);
    }

    #[test]
    fn a_child_that_was_there_before_the_first_generation_is_nobodys_with_all_that_it_starts() {
        let mut lineage = Lineage::default();
        look(&mut lineage, &tree([(1, &[5])]), &[], false);
        look(&mut lineage, &tree([(1, &[5, 10]), (5, &[6])]), &[OLD], false);
        look(&mut lineage, &tree([(1, &[5, 6, 10])]), &[OLD], false);
        lineage.ended(OLD.0);
        assert!(pids(&lineage).is_empty());
    }

    #[test]
    fn as_pid_1_an_orphan_that_was_not_seen_before_is_left_alone() {
        let mut lineage = Lineage::default();
        look(&mut lineage, &tree([(1, &[10, 30]), (10, &[11])]), &[OLD], true);
        look(&mut lineage, &tree([(1, &[11, 30])]), &[OLD], true);
        lineage.ended(OLD.0);
        assert_eq!(pids(&lineage), [11]);
    }

    #[test]
    fn a_number_that_was_used_again_is_another_process() {
        let mut lineage = Lineage::default();
        look(&mut lineage, &tree([(1, &[10, 20]), (10, &[11])]), &[OLD, NEW], false);
        let mut after = tree([(1, &[10, 20]), (20, &[11])]);
        after.began_again.insert(11);
        look(&mut lineage, &after, &[OLD, NEW], false);
        lineage.ended(OLD.0);
        assert!(pids(&lineage).is_empty());
        lineage.ended(NEW.0);
        assert_eq!(lineage.left_behind(), [Process { pid: 11, start: 111 }]);
    }

    #[test]
    fn what_is_left_behind_stays_so_with_all_that_it_starts() {
        let mut lineage = Lineage::default();
        look(&mut lineage, &tree([(1, &[10]), (10, &[11])]), &[OLD], false);
        lineage.ended(OLD.0);
        look(&mut lineage, &tree([(1, &[20, 11]), (11, &[12])]), &[NEW], false);
        assert_eq!(pids(&lineage), [11, 12]);
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let mut lineage = Lineage::default();
        look(&mut lineage, &tree([(1, &[10]), (10, &[11])]), &[OLD], false);
        look(&mut lineage, &tree([(1, &[10])]), &[OLD], false);
        assert!(lineage.0.is_empty());
    }
}
