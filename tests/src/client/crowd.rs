//! Many idle sessions of one supervised relay, which come back as today's clients do when they are told to go.

use crate::client::{SERVER_NAME, local_for, reachable};
use crate::program;
use crate::relay;
use crate::supervisor::{Setup, Supervisor};
use crate::tls::{self, Seen};
use crate::wait::{self, PATIENCE};
use anyhow::{Context as _, ensure};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The version that all speak.
const VERSION: &str = "moq-lite-06";

/// What a drain of a crowd looked like.
#[derive(Debug)]
pub struct Drained {
    /// When each was told, in parts of the spread since the first one; sorted.
    pub told: Vec<f64>,
    /// Handshakes at the successor in each 100 ms, by their number since the first.
    pub handshakes: BTreeMap<u128, u32>,
    /// Sessions that were told a second time, or told right after they had come back.
    pub told_again: usize,
    spread: Duration,
}

impl Drained {
    /// The distance of the GOAWAYs from an even distribution over the spread (Kolmogorov and Smirnov), and the
    /// probability of one as large by chance.
    #[must_use]
    pub fn evenness(&self) -> (f64, f64) {
        kolmogorov_smirnov(&self.told)
    }

    /// Handshakes in the busiest 100 ms, in multiples of what an even spread would have.
    #[must_use]
    pub fn busiest(&self) -> f64 {
        let busiest = self.handshakes.values().max().copied().unwrap_or(0);
        let all: u32 = self.handshakes.values().sum();
        f64::from(busiest) * self.spread.as_secs_f64() / (f64::from(all.max(1)) * BIN.as_secs_f64())
    }
}

const BIN: Duration = Duration::from_millis(100);

/// Has so many sessions at a relay, one in `quic_every` over QUIC and the others over TCP, and upgrades it with that
/// spread of GOAWAYs.
///
/// # Errors
/// A session can't be set up, was not told, or could not come back.
pub async fn drain(sessions: usize, quic_every: usize, spread: Duration) -> anyhow::Result<Drained> {
    let spread_arg = format!("{}ms", spread.as_millis());
    let args = ["--drain-spread", &spread_arg, "--runtime-workers", "2", "--listen-tcp-bind", "127.0.0.1:0"];
    let flags = ["--probation", "0s", "--drain-timeout", "60s"];
    let supervisor = Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).child(args).serve().await?;
    let (quic, tcp) = (address(&supervisor, "quic").await?, address(&supervisor, "tcp").await?);
    let versions = VERSION.parse::<moq_net::Version>().map_err(anyhow::Error::msg)?.into();
    let client = moq_net::Client::new().with_versions(versions).with_origin(moq_tokio::origin::spawn());
    let mut waiting = Vec::with_capacity(sessions);
    for number in 0..sessions {
        let via = if number % quic_every.max(1) == 0 { Via::quic(quic)? } else { Via::Tcp(tcp) };
        let session = wait::within(PATIENCE, "a session", via.connect(&client)).await??;
        waiting.push(tokio::spawn(obey(session, via, client.clone())));
    }
    supervisor.wait_for("all sessions", |status| status.sessions(1) == sessions as u64).await?;
    supervisor.upgrade().await?;
    let mut moved = Vec::with_capacity(sessions);
    for session in waiting {
        moved.push(wait::within(3 * PATIENCE, "a session that is told and comes back", session).await???);
    }
    supervisor.process.wait_for_line("drained", PATIENCE).await?;
    let status = supervisor.wait_for("the new one alone", |status| status.generations.len() == 1).await?;
    ensure!(status.sessions(2) == sessions as u64, "all have come back: {status:?}");

    let first_told = moved.iter().map(|session| session.told).min().context("somebody was told")?;
    let mut told: Vec<f64> =
        moved.iter().map(|session| (session.told - first_told).as_secs_f64() / spread.as_secs_f64()).collect();
    told.sort_by(f64::total_cmp);
    let first_back = moved.iter().map(|session| session.back).min().context("somebody came back")?;
    let mut handshakes = BTreeMap::new();
    for session in &moved {
        *handshakes.entry((session.back - first_back).as_millis() / BIN.as_millis()).or_default() += 1;
    }
    let told_again = moved.iter().filter(|session| session.session.draining().peek().is_some()).count();
    Ok(Drained { told, handshakes, told_again, spread })
}

/// Where a client reaches the listener of this name.
async fn address(supervisor: &Supervisor, name: &str) -> anyhow::Result<SocketAddr> {
    let listeners = supervisor.status().await?.listeners;
    let listener = listeners.iter().find(|listener| listener.name == name).context("it is listened on")?;
    Ok(reachable(listener.address.parse()?))
}

/// How to reach the relay, again and again.
enum Via {
    /// From a port of its own, as clients are.
    Quic(quinn::Endpoint, SocketAddr),
    Tcp(SocketAddr),
}

impl Via {
    fn quic(server: SocketAddr) -> anyhow::Result<Self> {
        let mut endpoint = quinn::Endpoint::client(local_for(server)).context("a client socket")?;
        endpoint.set_default_client_config(tls::client(&[VERSION], &Seen::default())?);
        Ok(Self::Quic(endpoint, server))
    }

    /// An idle session. It closes with its handle.
    async fn connect(&self, client: &moq_net::Client) -> anyhow::Result<moq_net::Session> {
        let now = Instant::now();
        match self {
            Self::Quic(endpoint, server) => {
                let connection = endpoint.connect(*server, SERVER_NAME)?.await.context("the QUIC handshake")?;
                let transport = web_transport_quinn::Session::raw(connection);
                let (session, driver) = client.connect(now, transport).await.context("the MoQ set-up")?;
                tokio::spawn(moq_net::time::run(driver));
                Ok(session)
            }
            Self::Tcp(server) => {
                let config = qmux::tcp::Config::new(qmux::Version::QMux01).protocols([VERSION]);
                let transport = moq_tokio::transport::Session::new(config.connect(*server).await.context("TCP")?);
                let (session, driver) = client.connect(now, transport).await.context("the MoQ set-up")?;
                tokio::spawn(moq_net::time::run(driver));
                Ok(session)
            }
        }
    }
}

/// A session that was told to go and has come back.
struct Moved {
    told: Instant,
    back: Instant,
    session: moq_net::Session,
}

/// Waits for the GOAWAY, connects again at once, and then lets the old session go. A second GOAWAY on that would be a
/// violation of the protocol, which ends it with an error.
async fn obey(old: moq_net::Session, via: Via, client: moq_net::Client) -> anyhow::Result<Moved> {
    old.draining().recv().await.context("it was closed without a GOAWAY")?;
    let told = Instant::now();
    let session = via.connect(&client).await?;
    Ok(Moved { told, back: Instant::now(), session })
}

fn kolmogorov_smirnov(sorted: &[f64]) -> (f64, f64) {
    let count = sorted.len() as f64;
    let off = |(rank, value): (usize, &f64)| {
        let even = value.clamp(0.0, 1.0);
        (even - rank as f64 / count).max((rank + 1) as f64 / count - even)
    };
    let distance = sorted.iter().enumerate().map(off).fold(0.0, f64::max);
    let root = count.sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * distance;
    let term = |k: i32| (if k % 2 == 1 { 2.0 } else { -2.0 }) * (-2.0 * f64::from(k * k) * lambda * lambda).exp();
    // For small distances the series does not converge, and its limit is 1.
    let p = if lambda < 0.3 { 1.0 } else { (1..=100).map(term).sum() };
    (distance, p)
}

#[cfg(test)]
mod tests {
    use super::kolmogorov_smirnov;

    /// The judge must be able to say no.
    #[test]
    fn an_uneven_sample_is_told_from_an_even_one() {
        let even: Vec<f64> = (0..2_000).map(|rank| f64::from(rank) / 2_000.0).collect();
        let herd: Vec<f64> = even.iter().map(|at| if *at < 0.1 { 0.0 } else { *at }).collect();
        assert!(kolmogorov_smirnov(&even).1 > 0.99);
        assert!(kolmogorov_smirnov(&[0.0; 2_000]).1 < 1e-6);
        assert!(kolmogorov_smirnov(&herd).1 < 0.01);
    }
}
