//! Several generations at once: how many there may be, how they fold, and that each of them ends in time with all that
//! it has started.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use protocol::exit;
use std::time::{Duration, Instant};
use tests::scenario::{self, UnderLoad};
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, procfs};

/// Listens where the echo server does.
const ADOPT: &str = "quic [::]:0 1\nname echo\nhello\nadopt\n";

/// A supervisor whose first generation plays this script.
async fn serving(script: &str, flags: &[&str]) -> anyhow::Result<(Supervisor, Replaceable)> {
    let setup = Setup::new("program")?.flags(flags);
    let program = Replaceable::new(setup.folder());
    program.plays(script)?;
    let exec = program.path().to_owned();
    let supervisor = setup.exec(exec).serve().await?;
    Ok((supervisor, program))
}

/// Processes below the supervisor that run `sleep`: what the fixture's grandchildren do.
fn grandchildren(supervisor: &Supervisor) -> Vec<u32> {
    let mut all = procfs::descendants(supervisor.process.pid());
    all.retain(|pid| procfs::status_field(*pid, "Name").is_ok_and(|name| name == "sleep"));
    all
}

/// Waits until a script that has started `count` grandchildren is that far.
async fn started(supervisor: &Supervisor, count: usize) -> anyhow::Result<Vec<u32>> {
    wait::eventually(PATIENCE, &format!("{count} grandchildren"), async || {
        let found = grandchildren(supervisor);
        Ok((found.len() == count).then_some(found))
    })
    .await
}

/// Waits until none of these is alive.
async fn ended(pids: &[u32]) -> anyhow::Result<()> {
    wait::until(PATIENCE, "their end", || Ok(!pids.iter().any(|pid| procfs::is_alive(*pid)))).await
}

/// Guards the limit, and that a refusal costs nothing: the operator learns whom to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_max_generations_nothing_is_lost() -> anyhow::Result<()> {
    let flags = ["--probation", "100ms", "--drain-timeout", "5m", "--max-generations", "2"];
    let under = UnderLoad::start(&flags).await?;
    under.supervisor.upgrade().await?;
    for _ in 0..3 {
        let says = ["the oldest, 1,", "20 sessions", "--evict-oldest"];
        scenario::upgrade_ends(&under.supervisor, exit::DENIED, &says).await?;
    }
    let status = under.supervisor.status().await?;
    assert_eq!((status.state(1), status.state(2), status.generations.len()), ("draining", "active", 2));
    under.unharmed().await?;
    Ok(())
}

/// Guards against a host that fills up with draining processes, however fast upgrades are asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_max_generations_run() -> anyhow::Result<()> {
    let hold = format!("{ADOPT}ready\nsessions 1\nhold");
    let flags = ["--probation", "0s", "--drain-timeout", "5m", "--max-generations", "3"];
    let (supervisor, _program) = serving(&hold, &flags).await?;
    for _ in 0..2 {
        supervisor.upgrade().await?;
    }
    for _ in 0..5 {
        supervisor.process.signal(Signal::SIGUSR2)?;
        scenario::upgrade_ends(&supervisor, exit::DENIED, &["the oldest, 1,"]).await?;
        let children = procfs::descendants(supervisor.process.pid());
        assert_eq!(children.len(), 3, "{children:?}");
    }
    let output = supervisor.command("upgrade", &["--evict-oldest"]).await?;
    ensure!(output.status.success(), "{}", output.stderr);
    let status = supervisor.status().await?;
    assert_eq!((status.state(1), status.generations.len()), ("gone", 3), "{status:?}");
    Ok(())
}

/// Everyone who asks gets the outcome of an upgrade that began after they asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_during_an_upgrade_wait_for_one_more() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "300ms", "--drain-timeout", "5m"]).await?;
    let first = under.supervisor.command("upgrade", &[]);
    let others = async {
        under.supervisor.wait_for("the first upgrade", |status| status.state(2) != "gone").await?;
        let ask = || under.supervisor.command("upgrade", &[]);
        let (one, two, three) = tokio::join!(ask(), ask(), ask());
        anyhow::Ok([one?, two?, three?])
    };
    let (first, others) = tokio::join!(first, others);
    let first = first?;
    assert!(first.stdout.contains("generation 2 is active"), "{}{}", first.stdout, first.stderr);
    for output in others? {
        assert!(output.stdout.contains("generation 3 is active"), "{}{}", output.stdout, output.stderr);
    }
    under.unharmed().await?;
    Ok(())
}

/// Guards against old processes that never go: one that ignores SIGTERM, and holds its sessions for ever, dies a grace
/// after its deadline, with its whole group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_killed_one_grace_after_its_deadline() -> anyhow::Result<()> {
    let script = format!("stubborn\n{ADOPT}child\nready\nsessions 3\nhold");
    let (supervisor, program) = serving(&script, &["--probation", "0s", "--drain-timeout", "1s"]).await?;
    let mut group = started(&supervisor, 1).await?;
    group.extend(supervisor.status().await?.generation(1).and_then(|first| first.pid));
    program.becomes_echo()?;
    let asked = Instant::now();
    supervisor.upgrade().await?;
    supervisor.wait_for("the end of the stubborn one", |status| status.state(1) == "gone").await?;
    // The deadline, and the grace of 2 s.
    assert!(asked.elapsed() >= Duration::from_secs(3), "{:?}", asked.elapsed());
    ended(&group).await
}

/// Guards against a child that can't drain, and would serve nobody until the deadline: SIGTERM is what it understands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_does_not_acknowledge_drain_gets_sigterm() -> anyhow::Result<()> {
    let script = format!("{ADOPT}ready\nsessions 3\nmute");
    let (supervisor, program) = serving(&script, &["--probation", "0s", "--drain-timeout", "5m"]).await?;
    program.becomes_echo()?;
    supervisor.upgrade().await?;
    supervisor.process.wait_for_line("does not acknowledge", PATIENCE).await?;
    supervisor.wait_for("its end by SIGTERM", |status| status.state(1) == "gone").await?;
    supervisor.process.wait_for_line("generation 1 was ended by signal 15", PATIENCE).await?;
    Ok(())
}

/// Guards against helpers that outlive their generation because they have left its process group, one way or the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn escaped_grandchildren_end_with_their_generation() -> anyhow::Result<()> {
    let script = format!("{ADOPT}child\nescape\ndaemon\nready\nserve");
    let (supervisor, program) = serving(&script, &["--probation", "0s"]).await?;
    let old = started(&supervisor, 3).await?;
    program.plays(&script)?;
    supervisor.upgrade().await?;
    supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    ended(&old).await?;
    // Those of the generation that lives are left alone.
    assert_eq!(started(&supervisor, 3).await?.len(), 3);
    Ok(())
}

/// All that at once between two busy generations: SIGTERM to one that does not acknowledge its drain, and the sweep of what
/// has escaped it, cost nobody else anything. (A daemon that nobody saw before it was an orphan may be anybody's, and would
/// live as long as the first generation.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_mute_generation_and_of_what_escaped_it_costs_no_other_one_anything() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "0s", "--drain-timeout", "5m"]).await?;
    under.program.plays(&format!("{ADOPT}child\nescape\nready\nsessions 3\nmute"))?;
    under.supervisor.upgrade().await?;
    let escaped = started(&under.supervisor, 2).await?;
    under.program.becomes_echo()?;
    under.supervisor.upgrade().await?;
    under.supervisor.wait_for("its end by SIGTERM", |status| status.state(2) == "gone").await?;
    ended(&escaped).await?;
    under.unharmed().await?;
    Ok(())
}

/// The same of an upgrade that fails: the old generation's are left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn escaped_grandchildren_of_a_failed_upgrade_end_with_it() -> anyhow::Result<()> {
    let (supervisor, program) = serving(&format!("{ADOPT}escape\ndaemon\nready\nserve"), &[]).await?;
    let old = started(&supervisor, 2).await?;
    program.plays(&format!("{ADOPT}escape\nfailed no\nhang"))?;
    scenario::upgrade_ends(&supervisor, exit::UPGRADE_FAILED, &["no"]).await?;
    let left = wait::eventually(PATIENCE, "those of the old one alone", async || {
        let found = grandchildren(&supervisor);
        Ok((found.len() == 2).then_some(found))
    })
    .await?;
    assert_eq!(old, left);
    Ok(())
}

/// The same of a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn escaped_grandchildren_of_a_crashed_generation_end_with_it() -> anyhow::Result<()> {
    let (supervisor, program) = serving(&format!("{ADOPT}escape\ndaemon\nready\nserve"), &[]).await?;
    let old = started(&supervisor, 2).await?;
    program.becomes_echo()?;
    let pid = supervisor.status().await?.generation(1).and_then(|first| first.pid).context("its pid")?;
    tests::process::signal_process(pid, Signal::SIGKILL)?;
    supervisor.wait_for("its successor", |status| status.state(2) == "active").await?;
    ended(&old).await
}

/// And at the latest, with the supervisor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outlives_the_supervisor() -> anyhow::Result<()> {
    let script = format!("{ADOPT}child\nescape\ndaemon\nready\nserve");
    let (mut supervisor, _program) = serving(&script, &[]).await?;
    started(&supervisor, 3).await?;
    let all = procfs::descendants(supervisor.process.pid());
    supervisor.process.signal(Signal::SIGTERM)?;
    let status = supervisor.process.wait(PATIENCE).await?;
    assert_eq!(status.code(), Some(i32::from(exit::OK)), "{}", supervisor.process.tail());
    assert!(!all.iter().any(|pid| procfs::is_alive(*pid)), "somebody outlived the supervisor");
    Ok(())
}

/// Guards against a broken version that is started again and again, silently and as fast as the machine can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_always_crashes_is_tried_ever_more_rarely_and_visibly() -> anyhow::Result<()> {
    let (supervisor, program) = serving(&format!("{ADOPT}ready\nserve"), &[]).await?;
    program.plays("exit 7")?;
    let pid = supervisor.status().await?.generation(1).and_then(|first| first.pid).context("its pid")?;
    tests::process::signal_process(pid, Signal::SIGKILL)?;
    let begin = Instant::now();
    wait::eventually(PATIENCE, "six attempts", async || {
        let status = scenario::status(&supervisor).await?;
        let failed = status["last_failure"]["generation"].as_u64().unwrap_or(0);
        Ok((failed >= 7).then_some(()))
    })
    .await?;
    // At once, then after at least half of 100, 200, 400, 800 and 1 600 ms.
    assert!(begin.elapsed() >= Duration::from_millis(1_550), "{:?}", begin.elapsed());
    let status = scenario::status(&supervisor).await?;
    assert_eq!(status["phase"], "failed", "{status}");
    assert_eq!(status["last_failure"]["reason"], "exited with status 7 before it was ready", "{status}");
    // Whoever has mended it need not wait for the next attempt.
    program.becomes_echo()?;
    assert!(supervisor.upgrade().await? > 7);
    assert_eq!(scenario::status(&supervisor).await?["phase"], "serving");
    Ok(())
}
