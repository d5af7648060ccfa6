//! The group cache: one pool for the whole process, sized by the settings.

mod memory;

use crate::config::{self, Size};
use memory::Memory;
use moq_net::cache;
use std::io;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often the headroom is looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// The pool that every origin of the process shares, and the ceiling on each track's own retention.
pub struct Sized {
    /// The shared pool.
    pub pool: cache::Pool,
    /// The ceiling on each track's retention: [`Duration::MAX`] when none is set (for `origin::Config`).
    pub duration: Duration,
}

/// Makes the pool. With `headroom` set, also spawns the task that resizes it, on the current tokio runtime; it ends with
/// the pool.
///
/// # Errors
/// The memory of the machine can't be read, which a percentage and `headroom` need.
pub fn pool(settings: &config::Cache) -> io::Result<Sized> {
    let capacity = settings.capacity.map(bytes).transpose()?;
    let expiry = settings.duration.unwrap_or(cache::DEFAULT_EXPIRY);
    let pool = cache::Pool::new(cache::Config::default().with_capacity(capacity).with_expiry(expiry));
    if let Some(headroom) = settings.headroom.map(bytes).transpose()? {
        // Now, so that a machine that can't tell is an error of the start.
        Memory::read()?;
        tokio::spawn(keep_headroom(pool.downgrade(), capacity, headroom));
    }
    Ok(Sized { pool, duration: settings.duration.unwrap_or(Duration::MAX) })
}

fn bytes(size: Size) -> io::Result<u64> {
    match size {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Percent(percent) => Ok(part(Memory::read()?.total, percent)),
    }
}

/// `percent` of `total`, rounded down to a millionth of the total.
fn part(total: u64, percent: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked at parsing to be above 0 and at most 100, so this is at most a million"
    )]
    let millionths = (percent * 10_000.0) as u64;
    u64::try_from(u128::from(total) * u128::from(millionths) / 1_000_000).unwrap_or(u64::MAX)
}

/// Resizes the pool so that `headroom` bytes stay available: it may grow into what is free beyond them, and shrinks when
/// others need the memory. It holds no pool, so that the pool ends when the last origin does.
async fn keep_headroom(pool: cache::PoolWeak, capacity: Option<u64>, headroom: u64) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        match Memory::read() {
            Ok(memory) => pool.resize(target(pool.used(), memory.available, headroom, capacity)),
            Err(error) => tracing::warn!(%error, "the cache keeps its size: available memory is unknown"),
        }
    }
}

/// The size that leaves `headroom` available.
fn target(used: u64, available: u64, headroom: u64, capacity: Option<u64>) -> u64 {
    let target = used.saturating_add(available).saturating_sub(headroom);
    capacity.map_or(target, |capacity| target.min(capacity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_way_to_the_headroom_and_never_passes_its_capacity() {
        for (used, available, headroom, capacity, expected) in [
            (100, 50, 30, None, 120),
            (100, 10, 30, None, 80),
            (10, 10, 30, None, 0),
            (100, 500, 30, Some(200), 200),
            (100, 10, 30, Some(200), 80),
            (u64::MAX, 1, 0, None, u64::MAX),
        ] {
            assert_eq!(target(used, available, headroom, capacity), expected);
        }
    }

    #[test]
    fn a_percentage_is_of_the_total() {
        for (total, percent, expected) in
            [(1_000_000, 50.0, 500_000), (1_000_000, 0.001, 10), (u64::MAX, 100.0, u64::MAX)]
        {
            assert_eq!(part(total, percent), expected);
        }
    }

    #[tokio::test]
    async fn settings_reach_the_pool() {
        let settings = config::Cache {
            capacity: Some(Size::Bytes(4_096)),
            headroom: Some(Size::Percent(1.0)),
            duration: Some(Duration::from_secs(5)),
        };
        let sized = pool(&settings).unwrap();
        assert_eq!(sized.pool.expiry(), Some(Duration::from_secs(5)));
        assert_eq!(sized.duration, Duration::from_secs(5));
        let unset = pool(&config::Cache { capacity: None, headroom: None, duration: None }).unwrap();
        assert_eq!(unset.pool.expiry(), Some(cache::DEFAULT_EXPIRY));
        assert_eq!(unset.duration, Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_ends_with_the_pool() {
        let pool = cache::Pool::unbounded();
        let task = tokio::spawn(keep_headroom(pool.downgrade(), None, 1_024));
        tokio::time::advance(INTERVAL).await;
        drop(pool);
        task.await.unwrap();
    }
}
