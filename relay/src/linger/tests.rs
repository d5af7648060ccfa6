//! When the end of a request is told.

use super::{LINGER, RecvStream};
use crate::role::Role;
use moq_net::web_transport_trait::{Error, poll};
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The peer has reset the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reset;

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reset")
    }
}

impl std::error::Error for Reset {}

impl Error for Reset {
    fn session_error(&self) -> Option<(u32, String)> {
        None
    }
}

/// A stream that brings so many bytes, one at a time, and then ends.
struct Bytes {
    left: usize,
    end: Result<(), Reset>,
}

impl poll::RecvStream for Bytes {
    type Error = Reset;

    fn poll_read(&mut self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<Result<Option<usize>, Reset>> {
        if self.left == 0 {
            return Poll::Ready(self.end.map(|()| None));
        }
        self.left -= 1;
        Poll::Ready(Ok(Some(1)))
    }

    fn stop(&mut self, _: u32) {}

    fn poll_closed(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Reset>> {
        Poll::Ready(self.end)
    }
}

fn draining() -> Role {
    Role::Draining { since: std::time::Instant::now() }
}

/// What one read gives, and how long it took.
async fn read(stream: &mut RecvStream<Bytes>) -> (Result<Option<usize>, Reset>, Duration) {
    let begun = Instant::now();
    let read = poll_fn(|cx| poll::RecvStream::poll_read(stream, cx, &mut [0])).await;
    (read, begun.elapsed())
}

/// The first three are told how it is at once; a relay that drains takes its time, for a FIN and for a reset.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_request_is_told_late_in_a_drain_and_only_then() {
    let standby = Role::Standby { since: std::time::Instant::now() };
    for (role, after) in
        [(Role::Ready, Duration::ZERO), (Role::Active, Duration::ZERO), (standby, Duration::ZERO), (draining(), LINGER)]
    {
        for end in [Ok(()), Err(Reset)] {
            let roles = watch::Sender::new(role);
            let mut stream = RecvStream::request(Bytes { left: 2, end }, roles.subscribe());
            assert_eq!(read(&mut stream).await, (Ok(Some(1)), Duration::ZERO), "{role:?}");
            assert_eq!(read(&mut stream).await, (Ok(Some(1)), Duration::ZERO), "{role:?}");
            assert_eq!(read(&mut stream).await, (end.map(|()| None), after), "{role:?}");
            // Told once: who reads on is not kept waiting.
            assert_eq!(read(&mut stream).await, (end.map(|()| None), Duration::ZERO), "{role:?}");
        }
    }
}

/// `moq-net` waits for the end of some streams without reading.
#[tokio::test(start_paused = true)]
async fn who_waits_for_the_end_alone_hears_of_it_as_late() {
    let roles = watch::Sender::new(draining());
    let mut stream = RecvStream::request(Bytes { left: 0, end: Err(Reset) }, roles.subscribe());
    let begun = Instant::now();
    let end = poll_fn(|cx| poll::RecvStream::poll_closed(&mut stream, cx)).await;
    assert_eq!((end, begun.elapsed()), (Err(Reset), LINGER));
}

/// Given up and polled again, as every `select!` does it: the time does not begin anew.
#[tokio::test(start_paused = true)]
async fn the_time_runs_while_nobody_polls() {
    let roles = watch::Sender::new(draining());
    let mut stream = RecvStream::request(Bytes { left: 0, end: Ok(()) }, roles.subscribe());
    assert!(timeout(LINGER / 2, read(&mut stream)).await.is_err());
    tokio::time::advance(LINGER).await;
    assert_eq!(read(&mut stream).await, (Ok(None), Duration::ZERO));
}

/// Media and our own requests end as they end.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_no_request_of_the_peers_is_left_alone() {
    let mut stream = RecvStream::plain(Bytes { left: 0, end: Ok(()) });
    assert_eq!(read(&mut stream).await, (Ok(None), Duration::ZERO));
}
