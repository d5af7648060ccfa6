//! Subscribers that join a broadcast at the boundary of two groups, and in the middle of one.

use crate::clients::{supervised, untold};
use anyhow::{Context as _, ensure};
use tests::client::media::{self, GROUP, Paced, Subscriber};
use tests::client::webtransport::{Media, Session};
use tests::wait::PATIENCE;

/// How many frames have been sent when they join: two groups and nothing of the third, or a third of it.
const MOMENTS: [(&str, u64); 2] = [("boundary", 2 * GROUP), ("middle", 2 * GROUP + GROUP / 3)];

/// Guards those who join over the link: what they get must be what they would get at the publisher's own generation, which is
/// what has been sent, the begun group with its beginning, and each frame from then on once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_joins_from_the_other_generation_gets_what_is_got_at_home() -> anyhow::Result<()> {
    let supervisor = supervised(&["--probation", "0s"]).await?;
    let server = supervisor.address().await?;
    let (sources, sinks) = ([media::origin(), media::origin()], [media::origin(), media::origin()]);
    let mut broadcasts = Vec::new();
    for (place, source) in ["old", "new"].iter().zip(&sources) {
        for (moment, sent) in MOMENTS {
            let path = format!("{moment}-in-{place}");
            broadcasts.push((sent, Paced::start(source, &path)?, path));
        }
    }
    let mut sessions = Vec::new();
    for generation in 1..=2 {
        let index = generation - 1;
        if generation == 2 {
            supervisor.upgrade().await?;
        }
        sessions.push(Session::connect(server, &Media::publish(&sources[index])).await?);
        sessions.push(untold(server, &Media::subscribe(&sinks[index])).await?);
    }
    supervisor.wait_for("two in each", |status| (status.sessions(1), status.sessions(2)) == (2, 2)).await?;

    for (sent, publisher, path) in &mut broadcasts {
        let sent = *sent;
        publisher.send_to(sent)?;
        let subscribers = sinks.each_ref().map(|sink| Subscriber::start(sink, path));
        for subscriber in &subscribers {
            subscriber.wait_for(sent - 1, PATIENCE).await?;
        }
        let all = 5 * GROUP;
        publisher.send_to(all)?;
        for (generation, subscriber) in (1..).zip(&subscribers) {
            let whose = || format!("{path}, watched in generation {generation}");
            let report = subscriber.wait_for_all(all - 1, PATIENCE).await.with_context(whose)?;
            // No group is older yet than what they accept.
            ensure!(report.first == Some(0), "{}: {report:?}", whose());
            ensure!((report.duplicates, report.interruptions) == (0, 0), "{}: {report:?}", whose());
        }
    }
    Ok(())
}
