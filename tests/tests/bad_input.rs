//! What is wrong with a flag, a file or a child is said in one line, with a documented exit status, and costs a
//! generation that serves nothing.

use anyhow::{Context as _, ensure};
use protocol::exit;
use std::time::Duration;
use tests::client::echo::Session;
use tests::client::media;
use tests::client::webtransport::{self, Media};
use tests::scenario;
use tests::supervisor::{Setup, Supervisor};
use tests::wait::PATIENCE;
use tests::{Replaceable, procfs, program};

/// How the line begins that says why a first generation failed.
const FIRST_FAILED: &str = "generation 1 failed before it was active: ";

/// What a child does wrong, and what is said of it.
struct Fault<'a> {
    /// The steps of the fixture.
    script: &'a str,
    /// The supervisor's exit status when it is the first generation.
    status: u8,
    /// What the line names.
    says: &'a [&'a str],
}

impl Fault<'_> {
    /// As the first generation: the supervisor ends with the reason, since there is nothing to keep.
    async fn ends_a_first_generation(&self) -> anyhow::Result<()> {
        let setup = Setup::new("program")?.flags(["--ready-timeout", "2s"]);
        let program = Replaceable::new(setup.folder());
        program.plays(self.script)?;
        let mut supervisor = setup.exec(program.path()).start()?;
        let line = supervisor.process.wait_for_line(FIRST_FAILED, PATIENCE).await?;
        self.is_named_in(&line)?;
        let status = supervisor.process.wait(PATIENCE).await?;
        ensure!(status.code() == Some(i32::from(self.status)), "{status}: {}", supervisor.process.tail());
        ensure!(supervisor.process.count(FIRST_FAILED) == 1, "{}", supervisor.process.tail());
        Ok(())
    }

    /// As an upgrade: it fails with the reason, and everything else is as before.
    async fn costs_a_serving_generation_nothing(&self) -> anyhow::Result<()> {
        let (supervisor, program) = serving(&["--ready-timeout", "2s"]).await?;
        let server = supervisor.address().await?;
        let session = Session::connect(server).await?;
        let descriptors = procfs::descriptors(supervisor.process.pid())?.len();

        program.plays(self.script)?;
        let output = supervisor.command("upgrade", &[]).await?;
        assert_eq!(output.status.code(), Some(i32::from(exit::UPGRADE_FAILED)), "{}", output.stderr);
        assert_eq!(output.stderr.trim().lines().count(), 1, "{}", output.stderr);
        self.is_named_in(&output.stderr)?;

        supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
        assert_eq!(supervisor.status().await?.state(1), "active");
        session.echo(b"the failed upgrade cost nothing").await?;
        drop(Session::connect(server).await?);
        let left = procfs::descriptors(supervisor.process.pid())?.len();
        // One member more may have been bound for it, which is kept for the next one.
        assert!(left <= descriptors + 1, "{descriptors} descriptors before, {left} after");

        program.becomes_echo()?;
        assert!(supervisor.upgrade().await? > 1);
        Ok(())
    }

    fn is_named_in(&self, line: &str) -> anyhow::Result<()> {
        for part in self.says {
            ensure!(line.contains(part), "{part:?} is not in {line:?}");
        }
        Ok(())
    }

    async fn check(&self) -> anyhow::Result<()> {
        self.ends_a_first_generation().await?;
        self.costs_a_serving_generation_nothing().await
    }
}

/// An echo server that serves, and its program on disk.
async fn serving(flags: &[&str]) -> anyhow::Result<(Supervisor, Replaceable)> {
    scenario::serving(&[flags, &["--probation", "0s"]].concat()).await
}

/// A child that sends bytes which are no message.
#[tokio::test]
async fn garbage() -> anyhow::Result<()> {
    let script = "say }{\nhang";
    Fault { script, status: exit::NOT_READY, says: &["not a message"] }.check().await
}

/// A child that sends a record longer than any message.
#[tokio::test]
async fn an_oversized_message() -> anyhow::Result<()> {
    let script = "oversized 70000\nhang";
    Fault { script, status: exit::NOT_READY, says: &["65536"] }.check().await
}

/// A child that speaks only versions that this supervisor does not.
#[tokio::test]
async fn no_common_protocol_version() -> anyhow::Result<()> {
    let script = "versions 7 9\nquic 127.0.0.1:0 1\nhello\nadopt\nhang";
    Fault { script, status: exit::NOT_READY, says: &["7 to 9", "1 to 1"] }.check().await
}

/// A secret of which the descriptor is missing.
#[tokio::test]
async fn a_secret_without_a_descriptor() -> anyhow::Result<()> {
    let script = "quic 127.0.0.1:0 1\nhello\nadopt\nkeep identity\nhang";
    Fault { script, status: exit::NOT_READY, says: &["keep"] }.check().await
}

/// Descriptors that nobody asked for must not stay open.
#[tokio::test]
async fn descriptors_beside_a_message_that_names_none() -> anyhow::Result<()> {
    let script = "quic 127.0.0.1:0 1\nhello\nadopt\ndescriptors 253\nhang";
    Fault { script, status: exit::NOT_READY, says: &["descriptor"] }.check().await
}

/// One listener can't have more sockets than one message can carry.
#[tokio::test]
async fn more_members_in_a_listener_than_a_message_carries() -> anyhow::Result<()> {
    let script = "quic 127.0.0.1:0 254\nhello\nadopt\nhang";
    Fault { script, status: exit::NOT_READY, says: &["254", "253"] }.check().await
}

/// More sockets than connection IDs can tell apart.
#[tokio::test]
async fn more_members_in_all_than_there_are_numbers() -> anyhow::Result<()> {
    let mut script = "quic 127.0.0.1:0 241\n".repeat(17);
    script.push_str("hello\nadopt\nhang");
    Fault { script: &script, status: exit::NOT_READY, says: &["4096"] }.check().await
}

/// An address that is none.
#[tokio::test]
async fn a_listener_at_no_address() -> anyhow::Result<()> {
    let script = "quic nowhere 1\nhello\nadopt\nhang";
    Fault { script, status: exit::NOT_READY, says: &["nowhere"] }.check().await
}

/// An address of another machine.
#[tokio::test]
async fn a_listener_at_an_address_of_another_machine() -> anyhow::Result<()> {
    let script = "quic 192.0.2.1:0 1\nhello\nadopt\nhang";
    Fault { script, status: exit::NOT_READY, says: &["192.0.2.1"] }.check().await
}

/// A child that neither gets ready nor says why.
#[tokio::test]
async fn a_child_that_is_never_ready() -> anyhow::Result<()> {
    let script = "quic 127.0.0.1:0 1\nhello\nadopt\nhang";
    Fault { script, status: exit::NOT_READY, says: &["not ready"] }.check().await
}

/// A child that says why it can't serve.
#[tokio::test]
async fn a_child_that_says_why_it_can_not_serve() -> anyhow::Result<()> {
    let script = "quic 127.0.0.1:0 1\nhello\nadopt\nfailed the moon is in the wrong phase\nexit 33";
    Fault { script, status: 33, says: &["the moon is in the wrong phase"] }.check().await
}

/// A child that just ends.
#[tokio::test]
async fn a_child_that_ends_before_it_is_ready() -> anyhow::Result<()> {
    Fault { script: "exit 42", status: 42, says: &["42"] }.check().await
}

/// A child that ends as if all were well, but has never served.
#[tokio::test]
async fn a_child_that_ends_with_0_before_it_is_ready() -> anyhow::Result<()> {
    Fault { script: "exit 0", status: exit::NOT_READY, says: &["0"] }.check().await
}

/// A child that is killed: 128 and the signal, as shells say it.
#[tokio::test]
async fn a_child_that_is_killed_before_it_is_ready() -> anyhow::Result<()> {
    Fault { script: "die", status: 137, says: &["9"] }.check().await
}

/// A child that hangs up.
#[tokio::test]
async fn a_child_that_closes_its_channel() -> anyhow::Result<()> {
    let script = "quic 127.0.0.1:0 1\nhello\nadopt\nclose\nhang";
    Fault { script, status: exit::NOT_READY, says: &["channel"] }.check().await
}

/// A list of listeners that needs several messages is no fault.
#[tokio::test]
async fn more_than_253_sockets_come_in_several_messages() -> anyhow::Result<()> {
    let (supervisor, program) = serving(&[]).await?;
    program.plays("quic 127.0.0.1:0 200\nquic [::1]:0 200\nhello\nadopt\nready\nserve")?;
    assert_eq!(supervisor.upgrade().await?, 2);
    let status = supervisor.status().await?;
    assert_eq!(status.listeners.iter().map(|listener| listener.members).max(), Some(200), "{status:?}");
    Ok(())
}

/// A generation that becomes unwell in its probation is rolled back, and its predecessor has lost nothing.
#[tokio::test]
async fn a_generation_that_is_unhealthy_in_its_probation_is_rolled_back() -> anyhow::Result<()> {
    let (supervisor, program) = scenario::serving(&["--probation", "10s"]).await?;
    let session = Session::connect(supervisor.address().await?).await?;
    program.plays("quic [::]:0 1\nhello\nadopt\nready\nactivated\nunhealthy I feel faint\nserve")?;
    let output = supervisor.command("upgrade", &[]).await?;
    assert_eq!(output.status.code(), Some(i32::from(exit::ROLLED_BACK)), "{}", output.stderr);
    assert!(output.stderr.contains("I feel faint"), "{}", output.stderr);
    supervisor
        .wait_for("the old one alone", |status| status.generations.len() == 1 && status.state(1) == "active")
        .await?;
    session.echo(b"rolled back").await?;
    drop(Session::connect(supervisor.address().await?).await?);
    Ok(())
}

/// A child that needs longer than the ready timeout and says so is waited for.
#[tokio::test]
async fn a_child_that_asks_for_more_time_gets_it() -> anyhow::Result<()> {
    let (supervisor, program) = serving(&["--ready-timeout", "1s"]).await?;
    program.plays("starting 30000\npause 1500\nquic [::]:0 1\nhello\nadopt\nready\nserve")?;
    assert_eq!(supervisor.upgrade().await?, 2);
    Ok(())
}

/// Failed upgrades leave nothing behind that refuses the next one.
#[tokio::test]
async fn a_good_upgrade_succeeds_after_three_bad_ones() -> anyhow::Result<()> {
    let (supervisor, program) = serving(&[]).await?;
    for script in ["exit 1", "die", "failed no"] {
        program.plays(script)?;
        let output = supervisor.command("upgrade", &[]).await?;
        assert_eq!(output.status.code(), Some(i32::from(exit::UPGRADE_FAILED)), "{}", output.stderr);
    }
    program.becomes_echo()?;
    assert_eq!(supervisor.upgrade().await?, 5);
    Ok(())
}

/// The same, of an upgrade.
#[tokio::test]
async fn a_program_that_can_not_be_started_any_more_costs_nothing() -> anyhow::Result<()> {
    let (supervisor, program) = serving(&[]).await?;
    let session = Session::connect(supervisor.address().await?).await?;
    program.is_removed()?;
    let output = supervisor.command("upgrade", &[]).await?;
    assert_eq!(output.status.code(), Some(i32::from(exit::UPGRADE_FAILED)), "{}", output.stderr);
    program.contains("neither a script nor a binary\n", 0o755)?;
    let output = supervisor.command("upgrade", &[]).await?;
    assert_eq!(output.status.code(), Some(i32::from(exit::UPGRADE_FAILED)), "{}", output.stderr);
    assert!(output.stderr.contains("can't be executed"), "{}", output.stderr);
    session.echo(b"still served").await?;
    Ok(())
}

/// A relay whose settings have gone bad since it was started: it says so, and the one that serves goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_a_relay_that_went_bad_cost_nothing() -> anyhow::Result<()> {
    let setup = Setup::new(program::relay()?)?.flags(["--probation", "0s"]);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let folder = setup.folder().to_owned();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text);
    let settings = "[listen]\nbind = \"[::]:0\"\n[listen.tls]\ncert = [\"own.crt\"]\nkey = [\"own.key\"]\n\
                    [auth]\npublic = [\"**\"]\n";
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    write("relay.toml", settings)?;
    write("own.crt", &certificate)?;
    write("own.key", &key)?;
    let supervisor = setup.child(["relay.toml"]).serve().await?;
    let server = supervisor.address().await?;
    let origin = media::origin();
    let session = webtransport::Session::connect(server, &Media::subscribe(&origin)).await?;

    let unknown = format!("{settings}publik = [\"**\"]\n");
    let faults = [
        ("relay.toml", unknown.as_str(), settings, "publik"),
        ("own.crt", "no certificate", certificate.as_str(), "own.crt"),
        ("own.key", &other.signing_key.serialize_pem(), key.as_str(), "own.key"),
    ];
    for (file, bad, good, culprit) in faults {
        write(file, bad)?;
        let output = supervisor.command("upgrade", &[]).await?;
        assert_eq!(output.status.code(), Some(i32::from(exit::UPGRADE_FAILED)), "{}", output.stderr);
        supervisor.process.wait_for_line(culprit, PATIENCE).await?;
        assert!(session.is_open() && !session.told());
        drop(webtransport::Session::connect(server, &Media::subscribe(&origin)).await?);
        write(file, good)?;
    }
    assert!(supervisor.upgrade().await? > 1);
    Ok(())
}

/// A child that does not read what it is told is not waited for, and its clients are not lost before their time.
#[tokio::test]
async fn a_child_that_does_not_read_its_channel_is_stopped_all_the_same() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "0s", "--drain-timeout", "1s"]);
    let program = Replaceable::new(setup.folder());
    program.plays("quic [::]:0 1\nhello\nadopt\nready\nsessions 3\nstubborn\nhang")?;
    let supervisor = setup.exec(program.path()).serve().await?;
    let deaf = supervisor.status().await?.generation(1).and_then(|deaf| deaf.pid).context("its pid")?;
    program.becomes_echo()?;
    assert_eq!(supervisor.upgrade().await?, 2);
    supervisor.wait_for("the end of the deaf one", |status| status.state(1) == "gone").await?;
    assert!(!procfs::is_alive(deaf));
    Ok(())
}

/// A child that holds its sessions beyond the deadline is killed a little later, not at once.
#[tokio::test]
async fn a_child_that_holds_its_sessions_is_killed_after_the_deadline() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "0s", "--drain-timeout", "1s"]);
    let program = Replaceable::new(setup.folder());
    program.plays("stubborn\nquic [::]:0 1\nhello\nadopt\nready\nsessions 3\nhold")?;
    let supervisor = setup.exec(program.path()).serve().await?;
    program.becomes_echo()?;
    assert_eq!(supervisor.upgrade().await?, 2);
    let committed = std::time::Instant::now();
    let draining = supervisor.status().await?;
    assert_eq!((draining.state(1), draining.sessions(1)), ("draining", 3));
    supervisor.wait_for("the end of the stubborn one", |status| status.state(1) == "gone").await?;
    assert!(committed.elapsed() >= Duration::from_secs(1), "{:?}", committed.elapsed());
    Ok(())
}
