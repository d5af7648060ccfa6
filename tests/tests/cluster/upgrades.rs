//! A cluster whose nodes are replaced while media passes from one end to the other.

use crate::node::{RATE, dialing, supervised, url};
use anyhow::Context as _;
use tests::client::flow::Flow;
use tests::client::native::Scheme;
use tests::supervisor::Supervisor;
use tests::wait::PATIENCE;

/// Seconds after which a session counts as old: longer than `relay::drain::ABOUT`, and than the steps of a drain.
const SETTLED: u32 = 10;

/// Four nodes in a line, each dialing the one before, in turn over WebTransport and raw QUIC.
async fn line() -> anyhow::Result<Vec<Supervisor>> {
    let mut nodes: Vec<Supervisor> = Vec::new();
    for scheme in [Scheme::Https, Scheme::Https, Scheme::Quic, Scheme::Https] {
        let peers = match nodes.last() {
            Some(before) => vec![url(scheme, before.address().await?)?],
            None => Vec::new(),
        };
        let dials = !peers.is_empty();
        let node = supervised(&["--probation", "300ms", "--drain-timeout", "60s"], &dialing(&peers)).await?;
        if dials {
            node.process.wait_for_line("peer connected", PATIENCE).await?;
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// Waits until the frames of so many seconds more have come on both ways, and none is missing.
async fn go_on(down: &Flow, up: &Flow, seconds: u32) -> anyhow::Result<()> {
    tokio::try_join!(down.goes_on(seconds), up.goes_on(seconds))?;
    Ok(())
}

/// What was done, and what each node said of it last.
fn said(nodes: &[Supervisor], when: &str) -> String {
    let node = |(number, node): (usize, &Supervisor)| format!("node {number}:\n{}", node.process.tail());
    let nodes: Vec<_> = (1..).zip(nodes).map(node).collect();
    format!("{when}\n{}", nodes.join("\n"))
}

/// Shown for the issue: no frame is lost from one far end to the other, whichever node is replaced, and when all are at
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_are_upgraded_one_by_one_and_all_at_once_under_load() -> anyhow::Result<()> {
    let nodes = line().await?;
    let (first, last) = (nodes[0].address().await?, nodes[3].address().await?);
    let down = Flow::start("down", RATE, first, last).await?;
    let up = Flow::start("up", RATE, last, first).await?;
    go_on(&down, &up, SETTLED).await?;
    for (number, node) in (1..).zip(&nodes) {
        node.upgrade().await.with_context(|| format!("upgrading node {number}"))?;
        let went_on = go_on(&down, &up, SETTLED).await;
        went_on.with_context(|| said(&nodes, &format!("after the upgrade of node {number}")))?;
    }
    let upgrades = nodes.iter().map(Supervisor::upgrade);
    let mut upgrades: Vec<_> = upgrades.map(Box::pin).collect();
    let (one, two, three, four) = match &mut upgrades[..] {
        [one, two, three, four] => tokio::join!(one, two, three, four),
        _ => unreachable!("four nodes"),
    };
    for upgraded in [one, two, three, four] {
        upgraded?;
    }
    go_on(&down, &up, SETTLED).await.with_context(|| said(&nodes, "after the upgrade of all"))?;
    // And when the old generations have gone, with every session that was kept beside its replacement.
    for node in &nodes {
        node.wait_for("one generation", |status| status.generations.len() == 1).await?;
    }
    go_on(&down, &up, 1).await.with_context(|| said(&nodes, "after the end of the old generations"))?;
    Ok(())
}
