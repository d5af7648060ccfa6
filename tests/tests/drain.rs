//! The drain of a crowd: who is told when, and what that does to the successor. `make bench-drain` has the crowd of 2 000
//! with optimised programs; both ends of 500 handshakes a second are too much for these on two cores.

use std::time::Duration;
use tests::client::crowd;

/// Guards the successor against a herd: GOAWAYs come at a steady rate, so handshakes do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_told_evenly_and_once_under_load() -> anyhow::Result<()> {
    let drained = crowd::drain(100, 10, Duration::from_secs(4)).await?;
    let (distance, p) = drained.evenness();
    assert!(p > 0.01, "not even: D = {distance:.4}, p = {p:.4}: {:?}", drained.told);
    // Two or three on average: a few more are no herd.
    assert!(drained.busiest() <= 4.0, "{:?}", drained.handshakes);
    assert_eq!(drained.told_again, 0);
    Ok(())
}
