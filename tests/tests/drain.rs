//! The drain of a crowd: who is told when, and what that does to the successor. `make bench-drain` has the crowd of 2 000
//! with optimised programs; both ends of 500 handshakes a second are too much for these on two cores.

use nix::sys::signal::Signal;
use protocol::exit;
use std::time::{Duration, Instant};
use tests::client::webtransport::{Media, Session};
use tests::client::{crowd, media};
use tests::supervisor::Setup;
use tests::wait::PATIENCE;
use tests::{program, relay};

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

/// Guards a stop in the middle of a long drain: the generation that drains has the shorter time of the two, and its sessions
/// are not told again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_shortens_a_drain_that_is_under_way() -> anyhow::Result<()> {
    let flags = ["--probation", "0s", "--drain-timeout", "5m", "--stop-timeout", "2s"];
    let mut supervisor = Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).serve().await?;
    let stays = Session::connect(supervisor.address().await?, &Media::subscribe(&media::origin())).await?;
    supervisor.wait_for("the session", |status| status.sessions(1) == 1).await?;
    supervisor.upgrade().await?;
    stays.goaway(PATIENCE).await?;
    assert!(stays.is_open());
    let asked = Instant::now();
    supervisor.process.signal(Signal::SIGTERM)?;
    let end = stays.closed(PATIENCE).await?;
    assert!(end.to_string().contains("goaway timeout"), "{end}");
    assert!(asked.elapsed() >= Duration::from_secs(1), "{:?}", asked.elapsed());
    supervisor.process.wait_for_line("deadline: 1 closed", PATIENCE).await?;
    assert_eq!(supervisor.process.wait(PATIENCE).await?.code(), Some(i32::from(exit::OK)));
    Ok(())
}
