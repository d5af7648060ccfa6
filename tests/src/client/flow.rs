//! A broadcast from one relay to another, by clients of today with their defaults.

use crate::client::media::{self, Publisher, Report, Subscriber};
use crate::client::native::{self, Scheme};
use crate::wait::PATIENCE;
use anyhow::Context as _;
use moq_tokio::{Connection, Restart};
use std::net::SocketAddr;
use std::time::Duration;

/// A publisher over WebTransport and a subscriber over raw QUIC, each redialing when it is told to go.
pub struct Flow {
    rate: u32,
    publisher: Publisher,
    subscriber: Subscriber,
    _connections: [Connection; 2],
}

impl Flow {
    /// Publishes `path`, `rate` frames a second, at one relay and watches it at another; returns when frames arrive.
    ///
    /// # Errors
    /// A client can't connect, or no frame arrives within [`PATIENCE`].
    pub async fn start(path: &str, rate: u32, from: SocketAddr, to: SocketAddr) -> anyhow::Result<Self> {
        let (source, sink) = (media::origin(), media::origin());
        let publisher = Publisher::start(&source, path, rate)?;
        let publishing = native::publish(&source, native::url(Scheme::Https, from)?, Restart::Redial).await?;
        let watching = native::subscribe(&sink, native::url(Scheme::Quic, to)?, Restart::Redial).await?;
        let subscriber = Subscriber::start(&sink, path);
        let flow = Self { rate, publisher, subscriber, _connections: [publishing, watching] };
        flow.subscriber.wait_for(1, PATIENCE).await.with_context(|| format!("no frame of {path}"))?;
        Ok(flow)
    }

    /// Waits until a second's frames more than have been published by now have come, and none before is missing.
    ///
    /// # Errors
    /// They don't come, or one is still missing, after [`PATIENCE`].
    pub async fn check(&self) -> anyhow::Result<Report> {
        self.goes_on(1).await
    }

    /// Waits until the frames of so many seconds more than have been published by now have come, and none before is missing.
    ///
    /// # Errors
    /// They don't come, or one is still missing, after as long and [`PATIENCE`].
    pub async fn goes_on(&self, seconds: u32) -> anyhow::Result<Report> {
        let last = self.publisher.sent() + u64::from(self.rate * seconds);
        self.subscriber.wait_for_all(last, PATIENCE + Duration::from_secs(seconds.into())).await
    }
}
