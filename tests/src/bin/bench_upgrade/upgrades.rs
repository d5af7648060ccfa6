//! Upgrades at a steady pace under fresh handshakes, beside sessions that ignore GOAWAY.

use anyhow::Context as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tests::client::handshake::Load;
use tests::client::media;
use tests::client::webtransport::{Media, Session};
use tests::report::{Report, count, milliseconds, quantile};
use tests::supervisor::Setup;
use tests::wait::PATIENCE;
use tests::{program, relay};
use tokio::sync::watch;

/// `--drain-timeout` of the run.
const DRAIN: Duration = Duration::from_secs(5);
/// GOAWAYs go out at 1 000 a second, and a session's own deadline is that much earlier than the drain's; the rest is for
/// the way of the GOAWAY and of the close.
const TOLERANCE: Duration = Duration::from_millis(100);

/// What became of the long sessions.
#[derive(Debug, Default)]
struct Sessions {
    /// Closed by the relay at its deadline.
    at_deadline: u64,
    /// Closed before, or for another reason.
    lost: Vec<String>,
}

/// Runs the load, and notes the figures.
pub(crate) async fn measure(
    upgrades: u32,
    every: Duration,
    rate: u32,
    sessions: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let flags = ["--probation", "500ms", "--drain-timeout", "5s", "--max-generations", "4"];
    let supervisor = Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).serve().await?;
    let six = supervisor.address().await?;
    let four = SocketAddr::from((Ipv4Addr::LOCALHOST, six.port()));

    let load = Load::start(&[six, four], &["h3"], rate)?;
    let (stop, stopped) = watch::channel(false);
    let keepers: Vec<_> = (0..sessions).map(|_| tokio::spawn(keep(six, stopped.clone()))).collect();
    let mut pace = tokio::time::interval(every);
    pace.tick().await;
    let mut refused = Vec::new();
    for _ in 0..upgrades {
        pace.tick().await;
        let output = supervisor.command("upgrade", &[]).await?;
        if !output.status.success() {
            refused.push(output.stderr);
        }
    }
    let mut handshakes = load.stop().await?;
    stop.send(true)?;
    let mut all = Sessions::default();
    for keeper in keepers {
        let one = keeper.await.context("a keeper of sessions")??;
        all.at_deadline += one.at_deadline;
        all.lost.extend(one.lost);
    }

    let status = supervisor.status().await?;
    let foreign = status.generations.iter().map(|generation| generation.foreign).sum();
    report.bound("upgrades that did not succeed", count(refused.len() as u64), "", 0.0);
    report.note("fresh handshakes", count(handshakes.total() as u64), "");
    report.bound("failed handshakes", count(handshakes.failed.len() as u64), "", 0.0);
    let delayed = 1_000.0 * count(handshakes.delayed() as u64) / count(handshakes.total().max(1) as u64);
    report.bound("handshakes delayed beyond one PTO, of 1 000", delayed, "", 1.0);
    report.note("handshake, p50", milliseconds(quantile(&mut handshakes.completed, 0.5)), "ms");
    report.note("handshake, p99", milliseconds(quantile(&mut handshakes.completed, 0.99)), "ms");
    report.note("handshake, slowest", milliseconds(quantile(&mut handshakes.completed, 1.0)), "ms");
    report.note("sessions closed at their generation's deadline", count(all.at_deadline), "");
    report.bound("sessions closed by others or before it", count(all.lost.len() as u64), "", 0.0);
    report.bound("foreign packets in the generations left", count(foreign), "", 0.0);
    for (what, lines) in [("upgrade", refused), ("session", all.lost)] {
        for line in lines {
            crate::say(&format!("{what}: {}", line.trim()))?;
        }
    }
    for failure in handshakes.failed {
        crate::say(&format!("handshake {failure}"))?;
    }
    Ok(())
}

/// Keeps one session open that does nothing about a GOAWAY, and replaces it when the relay has closed it.
async fn keep(server: SocketAddr, mut stopped: watch::Receiver<bool>) -> anyhow::Result<Sessions> {
    let mut outcome = Sessions::default();
    let sink = media::origin();
    loop {
        let session = match Session::connect(server, &Media::subscribe(&sink)).await {
            Ok(session) => session,
            Err(error) => {
                outcome.lost.push(format!("not opened: {error:#}"));
                continue;
            }
        };
        tokio::select! {
            _stop = stopped.changed() => return Ok(outcome),
            end = live(&session) => match end {
                Ok(()) => outcome.at_deadline += 1,
                Err(error) => outcome.lost.push(format!("{error:#}")),
            },
        }
    }
}

/// Waits for the end of a session, which must be the relay's, at the deadline.
async fn live(session: &Session) -> anyhow::Result<()> {
    // A session is told when its generation's successor is committed, which is at any time from now.
    session.goaway(Duration::MAX).await?;
    let told = Instant::now();
    let end = session.closed(DRAIN + PATIENCE).await?;
    let after = told.elapsed();
    anyhow::ensure!(after + TOLERANCE >= DRAIN, "closed {after:?} after its GOAWAY: {end}");
    anyhow::ensure!(end.to_string().contains("goaway timeout"), "closed at its deadline, but with: {end}");
    Ok(())
}
