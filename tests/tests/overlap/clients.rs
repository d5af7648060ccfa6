//! Clients that stay where they are, whatever they are told.

use std::net::SocketAddr;
use std::time::Duration;
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::webtransport::{Media, Session};
use tests::supervisor::{Setup, Supervisor};
use tests::wait::PATIENCE;
use tests::{program, relay};

/// Frames a second of each publisher.
pub(crate) const RATE: u32 = 60;

/// How many frames a subscriber has to get before something is said about it: several groups.
const STRETCH: u64 = 100;

/// The longest time without a new frame: as much as a busy machine may take, and less than it takes to notice that a way to a
/// broadcast is lost (10 s of silence).
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// A supervised relay with two workers that anybody may use, which lets its old generations live as long as a test does.
pub(crate) async fn supervised(flags: &[&str]) -> anyhow::Result<Supervisor> {
    let setup = Setup::new(program::relay()?)?.flags(["--drain-timeout", "5m"]).flags(flags);
    setup.child(relay::OPEN).child(["--runtime-workers", "2"]).serve().await
}

/// A session in a version without GOAWAY: it is never told to go, so that it may subscribe at any time.
pub(crate) async fn untold(server: SocketAddr, media: &Media) -> anyhow::Result<Session> {
    let version: moq_net::Version = "moq-lite-03".parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    Session::connect_with(server, media, version.into()).await
}

/// A publisher in one session that ignores any GOAWAY.
pub(crate) struct Staying {
    pub(crate) publisher: Publisher,
    session: Session,
}

impl Staying {
    pub(crate) async fn publish(server: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let source = media::origin();
        let publisher = Publisher::start(&source, path, RATE)?;
        Ok(Self { publisher, session: Session::connect(server, &Media::publish(&source)).await? })
    }

    /// Waits until it has been told to go.
    pub(crate) async fn told_to_go(&self) -> anyhow::Result<()> {
        self.session.goaway(PATIENCE).await.map(|_uri| ())
    }
}

/// A subscriber in one session that ignores any GOAWAY.
pub(crate) struct Watching {
    pub(crate) subscriber: Subscriber,
    _session: Session,
}

impl Watching {
    pub(crate) async fn start(server: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let sink = media::origin();
        let session = Session::connect(server, &Media::subscribe(&sink)).await?;
        Ok(Self { subscriber: Subscriber::start(&sink, path), _session: session })
    }

    /// In a session that is [`untold`].
    pub(crate) async fn start_untold(server: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let sink = media::origin();
        let session = untold(server, &Media::subscribe(&sink)).await?;
        Ok(Self { subscriber: Subscriber::start(&sink, path), _session: session })
    }

    /// Watches from now on until as much has been sent as is worth saying something about, and then that it is all there.
    pub(crate) async fn gets_all(&self, publisher: &Publisher) -> anyhow::Result<()> {
        self.has_all_to(publisher.sent() + STRETCH).await
    }

    /// Waits until frame `number` is there and none before the last is missing.
    pub(crate) async fn has_all_to(&self, number: u64) -> anyhow::Result<()> {
        let report = self.subscriber.wait_for_all(number, PATIENCE).await?;
        anyhow::ensure!((report.duplicates, report.interruptions) == (0, 0), "{report:?}");
        anyhow::ensure!(report.longest_gap < LONGEST_GAP, "{report:?}");
        Ok(())
    }
}
