//! The ledgers of generations, from their adoption until the clients in them have given up.

use crate::sockets::MemberShare;
use crate::state::{LedgerEntry, LedgerFile, names};
use protocol::ledger;
use protocol::message::{Generation, LedgerOf, Route};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// By generation.
#[derive(Debug, Default)]
pub(super) struct Ledgers(BTreeMap<Generation, Kept>);

/// One ledger, and where its clients are to be told from.
#[derive(Debug)]
struct Kept {
    file: OwnedFd,
    shares: Vec<MemberShare>,
}

impl Ledgers {
    /// What an earlier process kept.
    pub(super) fn restored(files: Vec<LedgerFile>) -> Self {
        let kept = files.into_iter().map(|LedgerFile { generation, shares, file }| (generation, Kept { file, shares }));
        Self(kept.collect())
    }

    /// Makes one for a generation with these members.
    ///
    /// # Errors
    /// As memfd_create(2) and ftruncate(2).
    pub(super) fn create(&mut self, generation: Generation, shares: Vec<MemberShare>) -> io::Result<()> {
        let members = shares.iter().map(|share| usize::from(share.members)).sum();
        let file = ledger::create(members)?;
        self.0.insert(generation, Kept { file, shares });
        Ok(())
    }

    /// That of a generation.
    pub(super) fn file(&self, generation: Generation) -> Option<BorrowedFd<'_>> {
        self.0.get(&generation).map(|kept| kept.file.as_fd())
    }

    /// It is of no more use.
    pub(super) fn forget(&mut self, generation: Generation) {
        self.0.remove(&generation);
    }

    /// What there is of these dead, as `heir` says it to one that has these members, and the descriptors.
    pub(super) fn left_by(&self, dead: &[Generation], heir: &[MemberShare]) -> Vec<(LedgerOf, BorrowedFd<'_>)> {
        let left = dead.iter().filter_map(|dead| Some((*dead, self.0.get(dead)?)));
        let left = left.map(|(generation, kept)| {
            let routes = kept.shares.iter().filter_map(|share| route(*share, heir)).collect();
            (LedgerOf { generation, routes }, kept.file.as_fd())
        });
        left.collect()
    }

    /// For another process.
    pub(super) fn entries(&self) -> Vec<LedgerEntry> {
        let entry = |(generation, kept): (&Generation, &Kept)| LedgerEntry {
            generation: *generation,
            file: names::ledger(*generation),
            shares: kept.shares.clone(),
        };
        self.0.iter().map(entry).collect()
    }

    /// The descriptors by their names.
    pub(super) fn fds(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        self.0.iter().map(|(generation, kept)| (names::ledger(*generation), kept.file.as_fd()))
    }
}

/// How the clients of these members are reached from the heir's members at the same listener, if it has any.
fn route(share: MemberShare, heir: &[MemberShare]) -> Option<Route> {
    let there = heir.iter().find(|there| there.listener == share.listener && there.members > 0)?;
    let (via, via_members) = (there.first, there.members);
    Some(Route { first: share.first, members: share.members, via, via_members })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(listener: u64, first: u16, members: u16) -> MemberShare {
        MemberShare { listener, first, members }
    }

    #[test]
    fn clients_are_told_from_where_they_came_to() {
        let mut ledgers = Ledgers::default();
        let (dead, other) = (Generation(1), Generation(2));
        ledgers.create(dead, vec![share(7, 0, 4), share(8, 4, 1), share(9, 5, 1)]).expect("made");
        // The listener 9 is gone, and 8 has moved to the front.
        let left = ledgers.left_by(&[dead, other], &[share(8, 0, 2), share(7, 2, 3)]);
        let [(left, _)] = &left[..] else { panic!("one ledger") };
        let routes = [
            Route { first: 0, members: 4, via: 2, via_members: 3 },
            Route { first: 4, members: 1, via: 0, via_members: 2 },
        ];
        assert_eq!((left.generation, &left.routes[..]), (dead, &routes[..]));
        let via = |member| {
            let member = protocol::cid::MemberId::new(member).expect("small");
            left.routes.iter().find_map(|route| route.via(member)).map(protocol::cid::MemberId::get)
        };
        assert_eq!((0..7).map(via).collect::<Vec<_>>(), [Some(2), Some(3), Some(4), Some(2), Some(0), None, None]);
        ledgers.forget(dead);
        assert!(ledgers.left_by(&[dead], &[]).is_empty());
    }
}
