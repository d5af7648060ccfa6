//! The drain of a crowd: who is told when, and what that does to the successor.

use anyhow::Context as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tests::client::{SERVER_NAME, local_for};
use tests::supervisor::Setup;
use tests::tls::{self, Seen};
use tests::wait::{self, PATIENCE};
use tests::{program, relay};

const SESSIONS: usize = 2_000;
const SPREAD: Duration = Duration::from_secs(4);
/// How many sessions share a client socket. One that had all would be steered to one worker.
const EACH: usize = 50;

/// An idle session of today's kind: MoQ directly on QUIC.
struct Idle {
    moq: moq_net::Session,
    _connection: quinn::Connection,
}

async fn connect(endpoint: &quinn::Endpoint, server: SocketAddr) -> anyhow::Result<Idle> {
    let connection = endpoint.connect(server, SERVER_NAME)?.await.context("the QUIC handshake")?;
    let transport = web_transport_quinn::Session::raw(connection.clone());
    let client = moq_net::Client::new().with_subscriber(moq_tokio::origin::spawn());
    let (moq, driver) = client.connect(Instant::now(), transport).await.context("the MoQ set-up")?;
    tokio::spawn(moq_net::time::run(driver));
    Ok(Idle { moq, _connection: connection })
}

fn endpoint(server: SocketAddr) -> anyhow::Result<quinn::Endpoint> {
    let mut endpoint = quinn::Endpoint::client(local_for(server))?;
    endpoint.set_default_client_config(tls::client(&["moq-lite-06"], &Seen::default())?);
    Ok(endpoint)
}

/// When a session was told to go, when it had another one, and that one.
struct Moved {
    told: Instant,
    moved: Instant,
    session: Idle,
}

/// Waits for the GOAWAY, and does what today's clients do: connects again at once, and then lets the old one go.
async fn moves(old: Idle, endpoint: quinn::Endpoint, server: SocketAddr) -> anyhow::Result<Moved> {
    old.moq.draining().recv().await.context("it was closed without a GOAWAY")?;
    let told = Instant::now();
    let session = connect(&endpoint, server).await?;
    Ok(Moved { told, moved: Instant::now(), session })
}

/// Guards the successor against a herd: GOAWAYs come at a steady rate, so handshakes do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_sessions_are_told_evenly_under_load() -> anyhow::Result<()> {
    let spread = ["--drain-spread", "4s", "--runtime-workers", "2", "--quic-idle-timeout", "60s"];
    let flags = ["--probation", "0s", "--drain-timeout", "60s"];
    let supervisor = Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).child(spread).serve().await?;
    let server = supervisor.address().await?;
    let mut waiting = Vec::with_capacity(SESSIONS);
    for _ in 0..SESSIONS / EACH {
        let endpoint = endpoint(server)?;
        for _ in 0..EACH {
            let idle = wait::within(PATIENCE, "a session", connect(&endpoint, server)).await??;
            waiting.push(tokio::spawn(moves(idle, endpoint.clone(), server)));
        }
    }
    supervisor.wait_for("all sessions", |status| status.sessions(1) == SESSIONS as u64).await?;
    supervisor.upgrade().await?;
    let mut moved = Vec::with_capacity(SESSIONS);
    for session in waiting {
        moved.push(wait::within(3 * PATIENCE, "a session that moves", session).await???);
    }
    supervisor.process.wait_for_line("drained", PATIENCE).await?;

    let first = moved.iter().map(|session| session.told).min().context("somebody was told")?;
    let told = moved.iter().map(|session| session.told.duration_since(first).as_secs_f64() / SPREAD.as_secs_f64());
    let (distance, p) = kolmogorov_smirnov(told.collect());
    println!("GOAWAYs against a uniform distribution: D = {distance:.4}, p = {p:.4}");
    assert!(p > 0.01, "not uniform: D = {distance:.4}, p = {p:.4}");

    let first = moved.iter().map(|session| session.moved).min().context("somebody moved")?;
    let bin = Duration::from_millis(100);
    let mut bins = std::collections::BTreeMap::<u128, u32>::new();
    for session in &moved {
        *bins.entry(session.moved.duration_since(first).as_millis() / bin.as_millis()).or_default() += 1;
    }
    let average = SESSIONS as f64 * bin.as_secs_f64() / SPREAD.as_secs_f64();
    let busiest = bins.values().max().copied().unwrap_or(0);
    println!("handshakes at the successor: {average} in 100 ms on average, {busiest} in the busiest");
    assert!(f64::from(busiest) <= 2.0 * average, "{bins:?}");

    // Told once: a second GOAWAY would be a violation of the protocol, and nobody was told who had just come.
    assert!(moved.iter().all(|session| session.session.moq.draining().peek().is_none()));
    let status = supervisor.wait_for("the new one alone", |status| status.generations.len() == 1).await?;
    assert_eq!(status.sessions(2), SESSIONS as u64, "{status:?}");
    Ok(())
}

/// The distance of a sample from the uniform distribution over 0 to 1, and the probability of one as large by chance.
fn kolmogorov_smirnov(mut sample: Vec<f64>) -> (f64, f64) {
    sample.sort_by(f64::total_cmp);
    let count = sample.len() as f64;
    let off = |(rank, value): (usize, &f64)| {
        let uniform = value.clamp(0.0, 1.0);
        (uniform - rank as f64 / count).max((rank + 1) as f64 / count - uniform)
    };
    let distance = sample.iter().enumerate().map(off).fold(0.0, f64::max);
    let root = count.sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * distance;
    let term = |k: i32| (if k % 2 == 1 { 2.0 } else { -2.0 }) * (-2.0 * f64::from(k * k) * lambda * lambda).exp();
    // For small distances the series does not converge, and its limit is 1.
    let p = if lambda < 0.3 { 1.0 } else { (1..=100).map(term).sum() };
    (distance, p)
}

/// The judge must be able to say no.
#[test]
fn an_uneven_sample_is_told_from_an_even_one() {
    let even: Vec<f64> = (0..2_000).map(|rank| f64::from(rank) / 2_000.0).collect();
    let all_at_once = vec![0.0; 2_000];
    let herd: Vec<f64> = even.iter().map(|at| if *at < 0.1 { 0.0 } else { *at }).collect();
    assert!(kolmogorov_smirnov(even).1 > 0.99);
    assert!(kolmogorov_smirnov(all_at_once).1 < 1e-6);
    assert!(kolmogorov_smirnov(herd).1 < 0.01);
}
