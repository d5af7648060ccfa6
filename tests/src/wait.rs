//! Waiting for something to become true, with a deadline: the only place of this package that sleeps.

use anyhow::bail;
use std::time::{Duration, Instant};

/// What a test grants to anything that takes milliseconds on an idle machine. Long, because a loaded machine is not a
/// failure; a wait ends as soon as its event has come.
pub const PATIENCE: Duration = Duration::from_secs(20);

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Asks `probe` again and again until it says `Some`, and returns what it said.
///
/// # Errors
/// `probe` failed, or said `None` until `deadline` had passed since the call: the error says `what` was awaited.
pub async fn eventually<T>(
    deadline: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(found) = probe().await? {
            return Ok(found);
        }
        if start.elapsed() >= deadline {
            bail!("after {deadline:?} still not true: {what}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// [`eventually`] for a plain condition.
///
/// # Errors
/// As [`eventually`].
pub async fn until(
    deadline: Duration,
    what: &str,
    mut condition: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    eventually(deadline, what, async || Ok(condition()?.then_some(()))).await
}

/// Awaits `future`, at most for `deadline`.
///
/// # Errors
/// The deadline passed: the error says `what` was awaited.
pub async fn within<T>(deadline: Duration, what: &str, future: impl Future<Output = T>) -> anyhow::Result<T> {
    match tokio::time::timeout(deadline, future).await {
        Ok(value) => Ok(value),
        Err(_elapsed) => bail!("after {deadline:?} still not done: {what}"),
    }
}
