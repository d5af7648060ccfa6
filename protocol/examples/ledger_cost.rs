//! What the ledger costs on the way of a packet, beside a receive path of some 3 µs: `make bench-crash`.
//!
//! Ten thousand clients whose packets come in any order. Prints a line per case, and ends with status 1 if a packet of a
//! known client costs more than it may.

use protocol::cid::{Cipher, ConnectionId, MemberId, Tag};
use protocol::ledger::{Ledger, create};
use protocol::message::Generation;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 10_000;
const ROUNDS: u64 = 200;
/// Of a packet of a known client from its known address, in ns: 2 % of the receive path.
const AT_MOST: f64 = 60.0;

fn main() -> anyhow::Result<ExitCode> {
    let file = create(1)?;
    let ledger = Arc::new(Ledger::open(file, Duration::from_secs(600))?);
    let member = MemberId::new(0).ok_or_else(|| anyhow::anyhow!("a member"))?;
    let tag = Tag::new(Generation(1), member).ok_or_else(|| anyhow::anyhow!("a tag"))?;
    let mut writer = ledger.writer(member).ok_or_else(|| anyhow::anyhow!("a section"))?;
    let cipher = Cipher::new(&[7; 16]);
    let ids: Vec<_> = (0..CLIENTS).filter_map(|counter| Some(cipher.seal(ConnectionId::new(tag, counter)?))).collect();
    // Any order, the same each time: a step that has no factor in common with the number of clients.
    let order: Vec<u64> = (0..CLIENTS).map(|turn| turn * 7_919 % CLIENTS).collect();
    let at = |counter: u64, moved: u64| -> anyhow::Result<SocketAddr> {
        let port = u16::try_from(1_024 + (counter + moved) % 60_000)?;
        Ok(SocketAddr::from(([10, 0, u8::try_from(counter % 200)?, 1], port)))
    };
    let addresses: anyhow::Result<Vec<[SocketAddr; 2]>> =
        (0..CLIENTS).map(|counter| Ok([at(counter, 0)?, at(counter, 1)?])).collect();
    let addresses = addresses?;
    let now = Instant::now();
    let mut saw = |counter: u64, moved: usize| {
        let Ok(index) = usize::try_from(counter) else { return };
        writer.saw(now, counter, ids[index], addresses[index][moved], None);
    };

    let begun = Instant::now();
    order.iter().for_each(|counter| saw(*counter, 0));
    let new = each(begun, CLIENTS);
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        order.iter().for_each(|counter| saw(*counter, 0));
    }
    let known = each(begun, CLIENTS * ROUNDS);
    let begun = Instant::now();
    for round in 0..ROUNDS {
        order.iter().for_each(|counter| saw(*counter, usize::from(round % 2 == 0)));
    }
    let moved = each(begun, CLIENTS * ROUNDS);
    let begun = Instant::now();
    let mut opened = 0;
    for _ in 0..ROUNDS {
        opened = ids.iter().fold(opened, |all, id| all ^ cipher.open(*id).counter());
    }
    let decrypted = each(begun, CLIENTS * ROUNDS);

    let mut out = std::io::stdout();
    let verdict = if known <= AT_MOST { "ok" } else { "TOO MUCH" };
    writeln!(out, "ledger, a packet of a known client: {known:.1} ns, at most {AT_MOST} ns: {verdict}")?;
    writeln!(out, "ledger, a packet from a new address: {moved:.1} ns")?;
    writeln!(out, "ledger, the first packet of a client: {new:.1} ns")?;
    writeln!(out, "beside it, to decrypt its ID, which is done anyway: {decrypted:.1} ns ({opened:x})")?;
    Ok(if known <= AT_MOST { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn each(begun: Instant, packets: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let packets = packets as f64;
    begun.elapsed().as_secs_f64() * 1e9 / packets
}
