//! Of several ways to a broadcast, the one that is taken: what the links cost.

use crate::node::{RATE, alone, dialing, operators, url, with_operators};
use anyhow::ensure;
use std::net::SocketAddr;
use tests::client::flow::Flow;
use tests::client::media;
use tests::client::native::Scheme;
use tests::client::scrape;
use tests::client::webtransport::{Media, Session};
use tests::relay::Relay;
use tests::wait::{self, PATIENCE};

/// The hop ids of the two ends, and of the node between.
const NEAR: u64 = 101;
const MIDDLE: u64 = 102;
const FAR: u64 = 103;

/// A triangle: one end dials the other directly and over a node between.
struct Triangle {
    near: Relay,
    middle: Relay,
    far: Relay,
}

impl Triangle {
    /// `direct`: what the link from the near to the far end costs. Each of the two over the middle costs 3.
    async fn with(direct: u64) -> anyhow::Result<Self> {
        let far = alone("**", &node(FAR, &[])).await?;
        let to = |relay: &Relay, cost: u64| anyhow::Ok(format!("{}?cost={cost}", url(Scheme::Quic, relay.address)?));
        let middle = alone("**", &with_operators(&node(MIDDLE, &[to(&far, 3)?]))).await?;
        let near = alone("**", &node(NEAR, &[to(&far, direct)?, to(&middle, 3)?])).await?;
        for (dials, links) in [(&middle, 1), (&near, 2)] {
            wait::until(PATIENCE, "all links", || Ok(dials.process.count("peer connected") == links)).await?;
        }
        Ok(Self { near, middle, far })
    }

    /// How many frames the middle has passed on: taken from who has dialed it, or given to them. What it gives or takes where it
    /// has dialed is not counted.
    async fn passed_by_the_middle(&self) -> anyhow::Result<u64> {
        let page = scrape::metrics(operators(&self.middle).await?).await?;
        let counted = page.iter().filter(|(series, _)| series.starts_with("moq_relay_frames_total{"));
        Ok(counted.map(|(_, frames)| frames).sum())
    }
}

fn node(id: u64, peers: &[String]) -> Vec<String> {
    [dialing(peers), vec!["--cluster-id".to_owned(), id.to_string()]].concat()
}

/// Waits until the broadcast at that node comes by that way, which is what a client there is told.
async fn comes_by(server: SocketAddr, path: &str, way: &[u64]) -> anyhow::Result<()> {
    let sink = media::origin();
    let mut updates = sink.consume().announced();
    let _session = Session::connect(server, &Media::subscribe(&sink)).await?;
    let settled = async {
        while let Some(update) = updates.next().await {
            let hops: Vec<u64> = update.route.hops.iter().map(|hop| hop.id()).collect();
            if update.prefix.as_str() == path && hops.ends_with(way) {
                return Ok(());
            }
        }
        anyhow::bail!("the session has ended")
    };
    wait::within(PATIENCE, &format!("{path} by {way:?}"), settled).await?
}

/// Guards what operators pay for: a price that is not looked at sends everything over the dearest line, as the number of
/// nodes is what decides without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_ways_the_cheaper_one_is_taken_however_many_nodes_it_has() -> anyhow::Result<()> {
    for (direct, over_the_middle) in [(7, true), (5, false)] {
        let triangle = Triangle::with(direct).await?;
        let (near, far) = (triangle.near.address, triangle.far.address);
        // Both ends of a link know its price, whoever has dialed.
        for (path, from, to, ends) in [("there", near, far, [NEAR, FAR]), ("back", far, near, [FAR, NEAR])] {
            let flow = Flow::start(path, RATE, from, to).await?;
            let way = if over_the_middle { vec![ends[0], MIDDLE, ends[1]] } else { ends.to_vec() };
            comes_by(to, path, &way).await?;
            let before = triangle.passed_by_the_middle().await?;
            flow.check().await?;
            let passed = triangle.passed_by_the_middle().await? - before;
            let right = if over_the_middle { passed >= u64::from(RATE) / 2 } else { passed == 0 };
            ensure!(right, "{path}, the direct link costing {direct}: the middle passed {passed} frames on");
        }
    }
    Ok(())
}
