//! What the supervisor and the service manager hold.

use crate::procfs;
use crate::systemd::Service;
use crate::wait::{self, PATIENCE};
use anyhow::{Context as _, ensure};
use std::collections::BTreeSet;

/// Memory differs by what the allocator keeps: more than this is a leak.
const SLACK_KIB: u64 = 4 * 1_024;

/// All of it, of a service with one relay.
#[derive(Clone, Debug)]
pub(super) struct Holdings {
    /// The sockets of the group, each by a number that it keeps for life. They only grow, with the most relays that were
    /// ever alive at once.
    sockets: BTreeSet<String>,
    /// Other descriptors of the supervisor, but for ledgers: those of relays that were killed a moment ago are kept for
    /// their clients.
    descriptors: usize,
    threads: usize,
    memory_kib: u64,
    /// What the service manager keeps besides the sockets and ledgers.
    stored: usize,
    /// Processes of the unit.
    processes: usize,
}

impl Holdings {
    /// Of this service.
    ///
    /// # Errors
    /// It does not run, or does not come to rest.
    pub(super) async fn of(service: &Service<'_>) -> anyhow::Result<Self> {
        // The last change is in the store when nothing has changed between two looks, with an answer in between.
        let mut last = None;
        wait::eventually(PATIENCE, "a service at rest", async || {
            let now = Self::look(service).await?;
            let same = last.replace(now.shape()) == Some(now.shape());
            Ok(same.then_some(now))
        })
        .await
    }

    async fn look(service: &Service<'_>) -> anyhow::Result<Self> {
        let sockets = service.cookies().await?;
        let supervisor = service.supervisor().await?;
        let udp = procfs::udp_inodes(supervisor)?;
        let inode = |target: &str| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
        let is_udp = |target: &&String| inode(target).is_some_and(|inode: u64| udp.contains(&inode));
        let all = procfs::descriptors(supervisor)?;
        let stored: usize = service.property("NFileDescriptorStore").await?.parse().context("a number")?;
        let is_ledger = |target: &&String| target.contains("moq-supervise-ledger");
        let ledgers = all.values().filter(is_ledger).count();
        Ok(Self {
            descriptors: all.values().filter(|target| !is_udp(target) && !is_ledger(target)).count(),
            threads: procfs::status_field(supervisor, "Threads")?.parse().context("a number")?,
            memory_kib: procfs::rss_kib(supervisor)?,
            stored: stored.saturating_sub(sockets.len() + ledgers),
            processes: service.sandbox.processes(&service.name)?.len(),
            sockets,
        })
    }

    const fn shape(&self) -> (usize, usize, usize, usize) {
        (self.descriptors, self.threads, self.stored, self.processes)
    }

    /// # Errors
    /// Something has, or a socket is another one.
    pub(super) fn have_not_grown(&self, before: &Self) -> anyhow::Result<()> {
        let lost: Vec<_> = before.sockets.difference(&self.sockets).collect();
        ensure!(lost.is_empty(), "sockets are gone: {lost:?}");
        ensure!(self.shape() == before.shape(), "other holdings:\nbefore {before:?}\nafter {self:?}");
        let most = before.memory_kib + SLACK_KIB;
        ensure!(self.memory_kib <= most, "{} KiB, and {} before", self.memory_kib, before.memory_kib);
        Ok(())
    }
}
