//! Accepting from a listener whatever happens to it.

use moq_tokio::accept::Health;
use std::io;

/// The next connection. What a failed `accept(2)` means, and how long to wait before another one, is `moq-tokio`'s: the fault of
/// one connection costs the others nothing, and a process without free descriptors does not spin on its listener.
pub(crate) async fn accepted<T, F>(health: &Health, mut accept: impl FnMut() -> F) -> T
where
    F: Future<Output = io::Result<T>>,
{
    loop {
        match accept().await {
            Ok(connection) => {
                health.accepted();
                return connection;
            }
            Err(error) => {
                if let Some(pause) = health.failed(&error) {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::accepted;
    use moq_tokio::accept::{Failure, Health};
    use nix::libc;
    use std::future::ready;
    use std::io::Error;
    use std::time::Duration;
    use tokio::time::Instant;

    /// Accepts with these failures before, and says how long that took.
    async fn after(failures: &[i32], health: &Health) -> Duration {
        let begun = Instant::now();
        let mut failures = failures.iter();
        accepted(health, || ready(failures.next().map_or(Ok(()), |code| Err(Error::from_raw_os_error(*code))))).await;
        begun.elapsed()
    }

    /// Without a pause, a process without free descriptors would spin on its listener; with one that goes on growing, it would
    /// stay deaf long after it has some again.
    #[tokio::test(start_paused = true)]
    async fn exhaustion_is_paced_with_a_cap() {
        let health = Health::new("tcp");
        let took = after(&[libc::EMFILE; 12], &health).await;
        // From 100 ms doubled to at most 5 s; each between a half of it and all of it.
        assert!((Duration::from_secs(15)..=Duration::from_secs(37)).contains(&took), "{took:?}");
        assert_eq!((health.failures(Failure::Exhausted), health.stalled()), (12, None));
        assert!(after(&[libc::ENFILE], &health).await <= Duration::from_millis(101), "it begins anew");
    }

    /// A client that went away before it was accepted must not delay the next.
    #[tokio::test(start_paused = true)]
    async fn the_fault_of_one_connection_is_not_paced() {
        let health = Health::new("tcp");
        assert_eq!(after(&[libc::ECONNABORTED, libc::EPROTO], &health).await, Duration::ZERO);
        assert_eq!((health.failures(Failure::Connection), health.failures(Failure::Exhausted)), (2, 0));
    }
}
