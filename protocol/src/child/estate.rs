//! What a dead generation leaves to its heir.

use crate::channel::read_memfd;
use crate::keys::ResetKey;
use crate::ledger::{LedgerError, Reader};
use crate::message::{Generation, LedgerOf, Route};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};

/// One dead generation, in `heir`.
#[derive(Debug)]
pub struct Estate {
    /// Whose.
    pub generation: Generation,
    /// Signs its stateless resets.
    pub key: ResetKey,
    /// Who has to be told; `None`: it kept no ledger.
    pub ledger: Option<Result<Reader, LedgerError>>,
    /// From which of our members its clients can be told.
    pub routes: Vec<Route>,
}

/// `None`: the descriptors are not those that the message lists.
pub(super) fn read(generations: Vec<Generation>, ledgers: Vec<LedgerOf>, fds: Vec<OwnedFd>) -> Option<Vec<Estate>> {
    if generations.len() + ledgers.len() != fds.len() {
        return None;
    }
    let mut fds = fds.into_iter();
    let mut keys = BTreeMap::new();
    for generation in &generations {
        let content = read_memfd(fds.next()?.as_fd(), 32).ok()?;
        keys.insert(*generation, ResetKey::from_bytes(<[u8; 32]>::try_from(&content[..]).ok()?));
    }
    let mut left: BTreeMap<Generation, (Result<Reader, LedgerError>, Vec<Route>)> = BTreeMap::new();
    for LedgerOf { generation, routes } in ledgers {
        left.insert(generation, (Reader::open(fds.next()?), routes));
    }
    let estates = keys.into_iter().map(|(generation, key)| {
        let (ledger, routes) = match left.remove(&generation) {
            Some((ledger, routes)) => (Some(ledger), routes),
            None => (None, Vec::new()),
        };
        Estate { generation, key, ledger, routes }
    });
    Some(estates.collect())
}
