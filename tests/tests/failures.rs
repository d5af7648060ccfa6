//! Every way in which an upgrade can fail before the new generation is ready: `upgrade` has the reason and the status,
//! neither the old generation nor a client notices anything, and the next upgrade works.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use protocol::exit;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::scenario::{self, UnderLoad};
use tests::supervisor::Setup;
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, procfs, program};

/// Listens where the echo server does, and reads nothing that arrives there.
const ADOPT: &str = "quic [::]:0 1\nname echo\nhello\nadopt\n";

/// Makes an upgrade fail by what `break_it` does to the program on disk. `upgrade` must name all of `says`.
async fn costs_nothing(
    flags: &[&str],
    says: &[&str],
    break_it: impl FnOnce(&Replaceable) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let under = UnderLoad::start(&[&["--probation", "100ms", "--drain-timeout", "5m"], flags].concat()).await?;
    break_it(&under.program)?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, says).await?;
    recovers(under).await
}

/// After a failed upgrade: the old generation is alone and active again, and the next upgrade works.
async fn recovers(under: UnderLoad) -> anyhow::Result<()> {
    let left = under.supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    assert_eq!(left.state(1), "active");
    under.goes_on().await?;
    under.program.becomes_echo()?;
    let next = under.supervisor.upgrade().await?;
    assert!(next > 1);
    under.unharmed().await?;
    Ok(())
}

/// The usual kind: a child that plays this script.
async fn a_child_that(script: &str, says: &[&str]) -> anyhow::Result<()> {
    costs_nothing(&["--ready-timeout", "1s"], says, |program| program.plays(script)).await
}

/// Guards against an update that removed the program, or put something there that is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_can_not_be_executed() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "100ms", "--drain-timeout", "5m"]).await?;
    let path = under.program.path().to_string_lossy().into_owned();
    under.program.is_removed()?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &[&path, "was not found"]).await?;
    under.program.contains("#!/bin/sh\n", 0o644)?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &[&path, "chmod +x"]).await?;
    under.program.contains("neither a script nor a binary\n", 0o755)?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &[&path, "#!/bin/sh"]).await?;
    under.program.contains("#!/no/such/interpreter\n", 0o755)?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &[&path, "can't be executed"]).await?;
    recovers(under).await
}

/// Guards against a program that ends before it has said anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_knows_nothing_of_the_protocol() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "100ms", "--drain-timeout", "5m"]).await?;
    under.program.becomes(Path::new("/bin/false"), &[])?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["exited with status 1"]).await?;
    under.program.becomes(Path::new("/bin/true"), &[])?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["exited with status 0"]).await?;
    under.program.contains("#!/bin/sh\nkill -SEGV $$\n", 0o755)?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["ended by signal 11"]).await?;
    recovers(under).await
}

/// Guards against the tools that kill every child when the new one fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_exits_or_crashes_after_it_was_adopted() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "100ms", "--drain-timeout", "5m"]).await?;
    // Before it has read its sockets: its status says more than the channel that it left.
    under.program.plays("quic [::]:0 1\nname echo\nhello\nexit 41")?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["exited with status 41"]).await?;
    under.program.plays(&format!("{ADOPT}exit 42"))?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["exited with status 42"]).await?;
    under.program.plays(&format!("{ADOPT}die"))?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["ended by signal 9"]).await?;
    recovers(under).await
}

/// Guards the words of a child that knows what is wrong with it: they reach whoever asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_says_failed() -> anyhow::Result<()> {
    a_child_that(&format!("{ADOPT}failed no certificate for example.org\nexit 1"), &["no certificate for example.org"])
        .await
}

/// Guards against an upgrade that hangs for ever because the child does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_hangs_past_the_ready_timeout() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--ready-timeout", "1s", "--probation", "100ms", "--drain-timeout", "5m"]).await?;
    for script in ["stubborn\nhang".to_owned(), format!("stubborn\n{ADOPT}hang")] {
        under.program.plays(&script)?;
        let output = scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["not ready in time"]).await?;
        ensure!(output.took >= Duration::from_secs(1), "it was given {:?}", output.took);
    }
    recovers(under).await
}

/// Guards a child that is slow and says so: a large cache is read, say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_asks_for_more_time_survives() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--ready-timeout", "1s", "--probation", "100ms", "--drain-timeout", "5m"]).await?;
    under.program.plays(&format!("starting 60000\npause 2000\nbecome {}", program::echo()?.display()))?;
    let asked = Instant::now();
    assert_eq!(under.supervisor.upgrade().await?, 2);
    assert!(asked.elapsed() >= Duration::from_secs(2), "{:?}", asked.elapsed());
    under.unharmed().await?;
    Ok(())
}

/// Guards against a new configuration with an address that is another machine's, or another process's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_wants_an_address_that_can_not_be_bound() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "100ms", "--drain-timeout", "5m"]).await?;
    under.program.plays("quic [::]:0 1\nname echo\nquic 192.0.2.1:0 1\nhello\nadopt\nhang")?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["192.0.2.1"]).await?;
    let other = UdpSocket::bind("127.0.0.1:0").context("a socket of another process")?;
    let taken = other.local_addr()?.to_string();
    under.program.plays(&format!("quic [::]:0 1\nname echo\nquic {taken} 1\nhello\nadopt\nhang"))?;
    let holder = std::process::id().to_string();
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &[&taken, &holder]).await?;
    recovers(under).await
}

/// Guards against a program that is too new, or too old, for the supervisor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_without_a_common_protocol_version() -> anyhow::Result<()> {
    a_child_that(&format!("versions 7 9\n{ADOPT}hang"), &["protocol 7 to 9"]).await
}

/// Guards against a child whose channel fills up until it would block the supervisor: what must be said and can't be
/// ends the upgrade, long before the ready timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_stops_reading_its_channel() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--ready-timeout", "5m", "--probation", "100ms", "--drain-timeout", "5m"]).await?;
    let full = under.supervisor.folder().join("full");
    // Each unknown message has an answer, which nobody reads; answers that find no room are dropped.
    let babble = "say {\"type\":\"gossip\"}\n".repeat(1_000);
    under.program.plays(&format!("{ADOPT}{babble}report {}\nhang", full.display()))?;
    let upgrade = scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["does not read its channel"]);
    let reload = async {
        wait::until(PATIENCE, "a full channel", || Ok(full.exists())).await?;
        under.supervisor.process.signal(Signal::SIGHUP)
    };
    let (upgrade, reload) = tokio::join!(upgrade, reload);
    reload?;
    upgrade?;
    recovers(under).await
}

/// Guards against a child that sends what is no message, or hangs up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_breaks_the_protocol() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "100ms", "--drain-timeout", "5m"]).await?;
    let cases = [
        ("say }{\nhang".to_owned(), "not a message"),
        ("ready\nhang".to_owned(), "ready"),
        (format!("{ADOPT}hello\nhang"), "hello"),
        (format!("{ADOPT}close\nhang"), "channel"),
    ];
    for (script, says) in cases {
        under.program.plays(&script)?;
        scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &[says]).await?;
    }
    recovers(under).await
}

/// Guards the operator's own check: it runs before anything is started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_command_that_fails_or_hangs() -> anyhow::Result<()> {
    let check = "case $(cat verdict 2>/dev/null) in bad) exit 3 ;; stuck) sleep 60 ;; esac";
    let setup = Setup::new("program")?;
    let verdict = setup.folder().join("verdict");
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let flags = ["--check-command", check, "--ready-timeout", "1s", "--probation", "100ms", "--drain-timeout", "5m"];
    let exec = program.path().to_owned();
    let under = UnderLoad::of(setup.flags(flags).exec(exec), program).await?;

    std::fs::write(&verdict, "bad")?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["check command", "status 3"]).await?;
    std::fs::write(&verdict, "stuck")?;
    scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &["check command", "in time"]).await?;
    let supervisor = under.supervisor.process.pid();
    let alone = || Ok(procfs::descendants(supervisor) == [under.first]);
    wait::until(PATIENCE, "the end of the check command and what it started", alone).await?;
    std::fs::write(&verdict, "good")?;
    recovers(under).await
}

/// Guards against a supervisor whose flag of an upgrade in flight stays up after a failure, so that all later ones are
/// refused; and against steering that moves to a generation that never was ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_failures_in_a_row_leave_nothing_behind() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "100ms", "--drain-timeout", "5m"]).await?;
    let supervisor = under.supervisor.process.pid();
    let mut after = Vec::new();
    for script in ["exit 1", "die", "quic [::]:0 1\nname echo\nhello\nadopt\nfailed no"] {
        under.program.plays(script)?;
        scenario::upgrade_ends(&under.supervisor, exit::UPGRADE_FAILED, &[]).await?;
        let left = under.supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
        assert_eq!(left.state(1), "active");
        after.push(procfs::udp_inodes(supervisor)?);
    }
    assert_eq!(procfs::udp_inodes(under.first)?.len(), 1, "the old one has its own member and no other");
    assert!(after[2].len() <= after[0].len() + 1, "members are left behind: {after:?}");
    let status = scenario::status(&under.supervisor).await?;
    assert_eq!(status["last_failure"]["generation"], 4, "{status}");
    assert_eq!(status["last_failure"]["reason"], "no", "{status}");
    assert_eq!(status["upgrade"], serde_json::Value::Null, "{status}");
    recovers(under).await
}

/// Guards "has noticed nothing": it is told what the kernel's merging of datagrams makes necessary, and who else is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_generation_hears_of_a_failed_upgrade_nothing_that_changes_what_it_does() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--ready-timeout", "1s", "--probation", "0s"]);
    let notes = setup.folder().join("notes");
    let program = Replaceable::new(setup.folder());
    program.plays(&format!("{ADOPT}ready\nactivated\nnotes {}\nserve", notes.display()))?;
    let exec = program.path().to_owned();
    let supervisor = setup.exec(exec).serve().await?;
    for script in ["exit 1".to_owned(), format!("{ADOPT}die"), format!("{ADOPT}hang"), format!("{ADOPT}failed no")] {
        program.plays(&script)?;
        scenario::upgrade_ends(&supervisor, exit::UPGRADE_FAILED, &[]).await?;
        supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    }
    // The next upgrade's `standby` is the mark up to which it has heard everything.
    program.becomes_echo()?;
    supervisor.upgrade().await?;
    let heard = wait::eventually(PATIENCE, "standby", async || {
        let heard = std::fs::read_to_string(&notes).unwrap_or_default();
        Ok(heard.lines().any(|kind| kind == "standby").then_some(heard))
    })
    .await?;
    let before: Vec<&str> = heard.lines().take_while(|kind| *kind != "standby").collect();
    assert!(before.iter().all(|kind| ["gro", "alone", "link", "counters", "heir"].contains(kind)), "{before:?}");
    Ok(())
}
