//! Relays that crash again and again: seen, bounded, and over as soon as they are mended.

use crate::told::kill;
use anyhow::{Context as _, ensure};
use std::path::Path;
use std::time::{Duration, Instant};
use tests::client::echo::Session;
use tests::client::handshake::Load;
use tests::notify::NotifySocket;
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, procfs, program, scenario};

/// Listens where the echo server does.
const ADOPT: &str = "quic [::]:0 1\nname echo\nhello\nadopt\n";
/// How long a loop is watched: the delays before the starts are 0, then from the upper half of 100 ms, 200 ms, and so on, so the
/// ninth respawn comes 6.35 s to 12.7 s after the first.
const WATCHED: Duration = Duration::from_secs(6);
/// At most so many starts in that time; at least half the delays up to the fourth have passed.
const STARTS: std::ops::RangeInclusive<u32> = 4..=9;

struct Loop {
    supervisor: Supervisor,
    program: Replaceable,
    notify: NotifySocket,
}

impl Loop {
    async fn start() -> anyhow::Result<Self> {
        let setup = Setup::new("program")?.flags(["--probation", "0s"]);
        let program = Replaceable::new(setup.folder());
        program.becomes_echo()?;
        let notify = NotifySocket::in_folder(setup.folder())?;
        let exec = program.path().to_owned();
        let supervisor = setup.env("NOTIFY_SOCKET", notify.address()).exec(exec).serve().await?;
        Ok(Self { supervisor, program, notify })
    }

    async fn starts(&self) -> anyhow::Result<u32> {
        let starts = self.supervisor.process.count(": process ");
        Ok(u32::try_from(starts)?)
    }

    /// When that line was written, since midnight.
    fn since(&self, what: &str, who: &str) -> anyhow::Result<Duration> {
        let lines = self.supervisor.process.lines();
        let line = lines.iter().find(|line| line.contains(what) && line.contains(who));
        let line = line.with_context(|| format!("a line of {who} with {what}"))?;
        let (_date, time) = line.split_once('T').context("a date and a time")?;
        let [hours, minutes, seconds] = time.split_once('Z').context("a time")?.0.split(':').collect::<Vec<_>>()[..]
        else {
            anyhow::bail!("no time in {line}")
        };
        let minutes = hours.parse::<u64>()? * 60 + minutes.parse::<u64>()?;
        Ok(Duration::from_secs(minutes * 60) + Duration::from_secs_f64(seconds.parse()?))
    }

    /// Waits until a start is put off, and says for how long, at least for `at_least`. The last failure was this one.
    async fn is_put_off(&self, at_least: Duration, failure: &str) -> anyhow::Result<Duration> {
        let left = wait::eventually(PATIENCE, "a start that is put off", async || {
            let status = scenario::status(&self.supervisor).await?;
            if status["phase"] != "failed" || status["upgrade"] != serde_json::Value::Null {
                return Ok(None);
            }
            let reason = status["last_failure"]["reason"].as_str().unwrap_or_default();
            ensure!(reason.contains(failure), "{status}");
            let text = status["text"].as_str().unwrap_or_default();
            ensure!(text.contains("failed"), "{status}");
            Ok(next_attempt(text).filter(|left| *left >= at_least))
        });
        left.await.with_context(|| self.supervisor.process.tail())
    }

    /// The operator mends it, and need not wait: all was over long before the next start was due.
    async fn recovers(self, failure: &str) -> anyhow::Result<()> {
        let left = self.is_put_off(Duration::from_secs(2), failure).await?;
        let asked = Instant::now();
        self.program.becomes_echo()?;
        self.supervisor.upgrade().await?;

        let took = asked.elapsed();
        ensure!(took < left, "{took:?} of the {left:?} that were left");
        self.serves().await
    }

    async fn serves(self) -> anyhow::Result<()> {
        let server = self.supervisor.address().await?;
        Session::connect(server).await?.echo(b"mended").await?;
        let status = self.supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
        assert_eq!(status.phase, "serving");
        Ok(())
    }
}

/// How long until the next start, as the status text says it.
fn next_attempt(text: &str) -> Option<Duration> {
    let (_, rest) = text.split_once(", the next in ")?;
    let (seconds, _) = rest.split_once(" s")?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Watches a loop that has begun: as many starts as the backoff allows, and hardly any work between them.
async fn is_bounded(service: &Loop, starts_before: u32) -> anyhow::Result<()> {
    let (begun, ticks) = (Instant::now(), procfs::cpu_ticks(service.supervisor.process.pid())?);
    wait::until(2 * WATCHED, "the time to watch", || Ok(begun.elapsed() >= WATCHED)).await?;
    let starts = service.starts().await? - starts_before;
    ensure!(STARTS.contains(&starts), "{starts} starts in {:?}", begun.elapsed());
    // Ticks are hundredths of a second: a tenth of one core, where a loop without a pause would take all of it.
    let ticks = procfs::cpu_ticks(service.supervisor.process.pid())? - ticks;
    ensure!(ticks < 60, "{ticks} ticks in {WATCHED:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_dies_after_50_ms_is_started_ever_more_rarely_and_said_to_fail() -> anyhow::Result<()> {
    let service = Loop::start().await?;
    service.program.plays("pause 50\nexit 3")?;
    let before = service.starts().await?;
    kill(&service.supervisor, 1).await?;
    is_bounded(&service, before).await?;
    service.is_put_off(Duration::ZERO, "exited with status 3").await?;
    let said =
        service.notify.received().iter().any(|note| note.text.contains("STATUS=") && note.text.contains("failed"));
    ensure!(said, "STATUS says it: {:?}", service.notify.received());
    let metrics = service.supervisor.command("status", &["--metrics"]).await?.stdout;
    ensure!(metrics.contains("moq_supervise_phase{phase=\"failed\"} 1"), "{metrics}");
    service.recovers("exited with status 3").await
}

/// A client can be what kills it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_dies_of_its_first_handshake_does_not_die_faster_for_more_of_them() -> anyhow::Result<()> {
    let service = Loop::start().await?;
    let server = service.supervisor.address().await?;
    service.program.plays(&format!("{ADOPT}ready\nactivated\npacket\ndie"))?;
    let before = service.starts().await?;
    let load = Load::start(&[server], &[], 20)?;
    kill(&service.supervisor, 1).await?;
    is_bounded(&service, before).await?;
    service.is_put_off(Duration::ZERO, "ended by signal 9").await?;
    let failed = service.recovers("ended by signal 9").await;
    drop(load);
    failed
}

/// Five seconds are no proof of health: the delays grow on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_dies_after_five_seconds_is_not_taken_for_a_stable_one() -> anyhow::Result<()> {
    let service = Loop::start().await?;
    service.program.plays(&format!("{ADOPT}ready\nactivated\npause 5000\ndie"))?;
    kill(&service.supervisor, 1).await?;
    service.supervisor.wait_for("the fourth", |status| status.state(4) == "active").await?;
    // At once, then after at most 100 ms, then after at least 100 ms: the count was not reset.
    let pause =
        service.since(": process ", "generation 4")?.checked_sub(service.since("ended by signal", "generation 3")?);
    ensure!(pause.is_some_and(|pause| pause >= Duration::from_millis(100)), "{pause:?}");
    service.is_put_off(Duration::ZERO, "ended by signal 9").await?;
    service.program.becomes_echo()?;
    service.supervisor.upgrade().await?;
    service.serves().await
}

/// Delays that have grown stay as long for one that has served five seconds, and an operator need not wait for them either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_seconds_leave_a_long_delay_as_it_is_and_a_mended_one_starts_at_once() -> anyhow::Result<()> {
    let service = Loop::start().await?;
    // Only loops that are quicker come to such delays within seconds.
    service.program.plays("exit 3")?;
    kill(&service.supervisor, 1).await?;
    service.is_put_off(Duration::from_secs(1), "exited with status 3").await?;
    service.program.plays(&format!("{ADOPT}ready\nactivated\npause 5000\ndie"))?;
    let status = service.supervisor.wait_for("one that serves", |status| status.active().is_some()).await?;
    let served = status.active().context("it serves")?.generation;
    service.supervisor.wait_for("its end", |status| status.state(served) == "gone").await?;
    service.recovers("ended by signal 9").await
}

/// One bad start in ten costs one more start, not the service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_dies_at_every_tenth_start_is_started_an_eleventh_time() -> anyhow::Result<()> {
    let service = Loop::start().await?;
    let server = service.supervisor.address().await?;
    let count = service.supervisor.folder().join("starts");
    let script = format!(
        "#!/bin/sh\necho >> '{count}'\ntest $(($(wc -l < '{count}') % 10)) = 0 && exit 1\nexec '{echo}' '[::]:0'\n",
        count = count.display(),
        echo = program::echo()?.display(),
    );
    service.program.contains(&script, 0o755)?;
    while starts(&count) < 11 {
        let status = service.supervisor.wait_for("an active one", |status| status.active().is_some()).await?;
        let Some(active) = status.active().map(|active| active.generation) else { continue };
        kill(&service.supervisor, active).await?;
        service.supervisor.wait_for("its end", |status| status.state(active) == "gone").await?;
        // So many crashes in a row have a long backoff; an operator need not wait for it.
        wait::eventually(PATIENCE, "a start that works", async || {
            Ok(service.supervisor.command("upgrade", &[]).await?.status.success().then_some(()))
        })
        .await?;
    }
    Session::connect(server).await?.echo(b"here").await?;
    let status = service.supervisor.status().await?;
    kill(&service.supervisor, status.active().context("one serves")?.generation).await?;
    service.recovers("ended by signal 9").await
}

fn starts(count: &Path) -> usize {
    std::fs::read_to_string(count).map_or(0, |lines| lines.lines().count())
}
