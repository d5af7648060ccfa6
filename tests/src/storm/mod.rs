//! A storm: self-upgrades, upgrades of the relay, good and bad, reloads, restarts, and SIGKILL to supervisor and relays, at
//! random moments, one within the other, under a real systemd and with clients that notice everything.
//!
//! Nothing may be lost but what a relay that died had: its sessions, and the handshakes that it had begun. And nothing may
//! grow: what the supervisor and the service manager hold is the same after the storm as before.

mod blows;
mod clients;
mod holdings;
mod plan;
mod record;

pub use plan::{Bad, Fault, Plan, Step};
pub use record::{Failure, Loss, Moment, Record, Server};

use crate::systemd::{HANDSHAKES, SESSIONS, Sandbox, Service, Setup};
use crate::wait;
use anyhow::Context as _;
use blows::Blows;
use clients::{Book, Clients};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use holdings::Holdings;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Short, so that many upgrades fit into a storm; and so many generations that few upgrades are refused.
const FLAGS: [&str; 8] =
    ["--probation", "300ms", "--ready-timeout", "1s", "--drain-timeout", "10m", "--max-generations", "8"];
/// What ends a storm: the last respawn's backoff, and the last session of every relay.
const CALM: Duration = Duration::from_secs(60);

/// Lets the storm of `seed` rage for so long, and returns what came of it.
///
/// # Errors
/// Something was lost that must not be, or has grown, or does not come to rest.
pub async fn rage(sandbox: &Sandbox, seed: u64, lasts: Duration) -> anyhow::Result<Record> {
    let service = Setup::shipped(sandbox)?.flags(&FLAGS).install().await?;
    let book = Book::new();
    let blows = Blows::new(&service, book.clone());
    blows.good_relay()?;
    service.new_supervisor()?;
    service.must("start").await?;
    // The first replacement of everything is not counted: what is allocated once is allocated then.
    service.must("reload").await?;
    service.must("restart").await?;
    let before = calm(&service).await?;

    let servers: [SocketAddr; 2] =
        [(Ipv6Addr::LOCALHOST, Service::PORT).into(), (Ipv4Addr::LOCALHOST, Service::PORT).into()];
    let clients = Clients::start(&book, &servers, SESSIONS, HANDSHAKES)?;
    let context = || format!("in the storm of seed {seed}, {:?} after its beginning", book.now());
    deal_all(&blows, Plan::new(seed), lasts).await.with_context(context)?;
    clients.stop().await.with_context(context)?;
    let record = book.record();
    record.judge().with_context(context)?;
    let after = calm(&service).await.with_context(context)?;
    after.have_not_grown(&before).with_context(context)?;
    Ok(record)
}

/// Deals the blows of a plan, each at its time, and waits for the ends of all.
async fn deal_all(blows: &Blows<'_>, plan: Plan, lasts: Duration) -> anyhow::Result<()> {
    let mut under_way = FuturesUnordered::new();
    let mut looks = tokio::time::interval(LOOK);
    let mut plan = plan.into_iter();
    let mut next = plan.next().context("a plan is endless")?;
    let end = tokio::time::Instant::now() + lasts;
    let mut due = tokio::time::Instant::now() + next.pause;
    while due < end || !under_way.is_empty() {
        tokio::select! {
            Some(dealt) = under_way.next(), if !under_way.is_empty() => {
                let dealt: anyhow::Result<Fault> = dealt;
                dealt?;
            }
            () = tokio::time::sleep_until(due), if due < end => {
                let fault = next.fault;
                under_way.push(async move { blows.deal(fault).await.with_context(|| format!("{fault:?}")).map(|()| fault) });
                next = plan.next().context("a plan is endless")?;
                due += next.pause;
            }
            _look = looks.tick() => look(blows).await,
        }
    }
    Ok(())
}

/// From one look at the counters to the next.
const LOOK: Duration = Duration::from_millis(500);

/// Notes what the relays count; a supervisor that does not answer is looked at the next time.
async fn look(blows: &Blows<'_>) {
    let Ok(status) = blows.service.status().await else { return };
    blows.book.look(&status);
}

/// Waits until one relay is left, which this supervisor has started, and says what is held then. (More is held of one that
/// another supervisor has started: nobody but its pidfd says when that ends.)
async fn calm(service: &Service<'_>) -> anyhow::Result<Holdings> {
    let alone = |status: &crate::supervisor::Status| status.generations.len() == 1 && status.active().is_some();
    for own in [false, true] {
        if own {
            service.must("reload").await?;
        }
        wait::eventually(CALM, "one relay, active and alone", async || {
            Ok(service.status().await.ok().filter(alone).map(drop))
        })
        .await?;
    }
    service.wait_property("ActiveState", "active").await?;
    Holdings::of(service).await
}
