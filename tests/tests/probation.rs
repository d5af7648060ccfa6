//! What makes a new generation fail after the switch, and that it is undone at once: the old one serves on, on every
//! listener, and its clients were never told to go.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use protocol::exit;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::client::echo::Session;
use tests::client::media::origin;
use tests::client::webtransport::{Media, Session as WebTransport};
use tests::scenario::health::{Answer, HealthServer};
use tests::scenario::{self, UnderLoad};
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{Replaceable, procfs, program, relay};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpStream, UnixStream};

/// Becomes active where the echo server is, and then reads nothing that arrives there: the clients that come to it try
/// again until they are answered.
const ACTIVE: &str = "quic [::]:0 1\nname echo\nhello\nadopt\nready\nactivated\n";
/// A probation that only a failure ends.
const LONG: [&str; 2] = ["--probation", "1m"];

/// An upgrade to a child that fails after the switch: rolled back with a reason that names all of `says`.
async fn is_rolled_back(flags: &[&str], script: &str, says: &[&str]) -> anyhow::Result<()> {
    let under = UnderLoad::start(&[&LONG, flags].concat()).await?;
    under.program.plays(&format!("{ACTIVE}{script}"))?;
    scenario::upgrade_ends(&under.supervisor, exit::ROLLED_BACK, says).await?;
    serves_alone(under).await
}

/// After a rollback: the first generation is active and alone, and nothing was lost.
async fn serves_alone(under: UnderLoad) -> anyhow::Result<()> {
    let left = under.supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    assert_eq!(left.state(1), "active");
    under.unharmed().await?;
    Ok(())
}

/// Guards against a version that works until it is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_exits_is_rolled_back() -> anyhow::Result<()> {
    is_rolled_back(&[], "exit 3", &["generation 2", "exited with status 3", "probation"]).await
}

/// An end with status 0 is no success in a probation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_exits_with_0_is_rolled_back() -> anyhow::Result<()> {
    is_rolled_back(&[], "exit 0", &["generation 2", "exited with status 0"]).await
}

/// Guards against a version that crashes as soon as it has traffic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_crashes_is_rolled_back() -> anyhow::Result<()> {
    is_rolled_back(&[], "pause 300\ndie", &["generation 2", "ended by signal 9"]).await
}

/// Guards against a version that finds out by itself that it can't serve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_says_unhealthy_is_rolled_back() -> anyhow::Result<()> {
    is_rolled_back(&[], "unhealthy the disk is full\nserve", &["generation 2", "the disk is full"]).await
}

/// Guards against a generation that can't be told anything any more: it could not be drained later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_closes_its_channel_is_rolled_back() -> anyhow::Result<()> {
    is_rolled_back(&[], "close\nhang", &["generation 2", "closed its channel"]).await
}

/// Guards against a version that runs well and serves nobody: the operator's URL says so, in whatever way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_health_url_fails_three_times_is_rolled_back() -> anyhow::Result<()> {
    let health = HealthServer::start().await?;
    let url = health.url();
    let under = UnderLoad::start(&[&LONG[..], &["--health-url", &url]].concat()).await?;
    let ways = [(Answer::Sick, "503"), (Answer::Silent, "no answer"), (Answer::Gone, "--health-url")];
    for (answer, says) in ways {
        health.answers(answer);
        let asked = health.asked();
        under.program.plays(&format!("{ACTIVE}serve"))?;
        let output = scenario::upgrade_ends(&under.supervisor, exit::ROLLED_BACK, &[says]).await?;
        // One more may have begun by the time the third has failed.
        let probes = health.asked() - asked;
        assert!((3..=4).contains(&probes), "{answer:?}: {probes} probes: {}", output.stderr);
        under.supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    }
    serves_alone(under).await
}

/// The same by a command, which may also hang; what hangs is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_health_command_fails_three_times_is_rolled_back() -> anyhow::Result<()> {
    let setup = Setup::new("program")?;
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let verdict = setup.folder().join("verdict");
    let command = "case $(cat verdict) in sick) exit 4 ;; stuck) sleep 60 ;; esac";
    let exec = program.path().to_owned();
    let under = UnderLoad::of(setup.flags(LONG).flags(["--health-command", command]).exec(exec), program).await?;
    for (word, says) in [("sick", "status 4"), ("stuck", "500 ms")] {
        std::fs::write(&verdict, word)?;
        under.program.plays(&format!("{ACTIVE}serve"))?;
        scenario::upgrade_ends(&under.supervisor, exit::ROLLED_BACK, &["--health-command", says]).await?;
        under.supervisor.wait_for("one generation", |status| status.generations.len() == 1).await?;
    }
    let supervisor = under.supervisor.process.pid();
    let alone = || Ok(procfs::descendants(supervisor) == [under.first]);
    wait::until(PATIENCE, "the end of the commands and what they started", alone).await?;
    serves_alone(under).await
}

/// Guards against a rollback for a hiccup: two failures in a row are none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_failed_probes_are_forgiven() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "1500ms", "--drain-timeout", "5m"]);
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    // Fails, fails, succeeds, and so on.
    let command = "echo >> probes; test $(($(wc -l < probes) % 3)) = 0";
    let exec = program.path().to_owned();
    let under = UnderLoad::of(setup.flags(["--health-command", command]).exec(exec), program).await?;
    assert_eq!(under.supervisor.upgrade().await?, 2);
    under.unharmed().await?;
    Ok(())
}

/// Guards both ends of the pace: a service that is asked all the time, and a failure that is seen late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_a_quarter_of_a_second_apart() -> anyhow::Result<()> {
    // A hair less than the 250 ms: what is noted is when the command got to it.
    const LEAST: Duration = Duration::from_millis(230);
    let setup = Setup::new("program")?.flags(["--probation", "1500ms", "--drain-timeout", "5m"]);
    let program = Replaceable::new(setup.folder());
    program.becomes_echo()?;
    let probes = setup.folder().join("probes");
    let flags = ["--health-command", "date +%s%N >> probes"];
    let supervisor = setup.flags(flags).exec(program.path().to_owned()).serve().await?;
    supervisor.upgrade().await?;
    let text = std::fs::read_to_string(&probes)?;
    let times: Vec<u64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    let gaps: Vec<_> = times.windows(2).map(|pair| Duration::from_nanos(pair[1] - pair[0])).collect();
    assert!(gaps.iter().all(|gap| *gap >= LEAST), "{gaps:?}");
    assert!((3..=8).contains(&times.len()), "{} probes in 1.5 s: {gaps:?}", times.len());
    Ok(())
}

/// The probe that operators use: the relay's own `/health`, which the new generation answers as soon as it is active.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_relays_own_health_page_lets_an_upgrade_pass_its_probation() -> anyhow::Result<()> {
    // An address of this test's own, so that the port stays free until the relay has it.
    let address = [127, rand::random_range(1..=254), rand::random_range(1..=254), 9];
    let free = std::net::TcpListener::bind(SocketAddr::from((address, 0)))?.local_addr()?.to_string();
    let url = format!("http://{free}/health");
    let setup = Setup::new(program::relay()?)?.flags(["--probation", "1s", "--health-url", &url]);
    let setup = setup.child(relay::OPEN).child(["--internal-listen", &free]);
    let supervisor = setup.serve().await?;
    assert_eq!(supervisor.upgrade().await?, 2);
    let status = supervisor.status().await?;
    assert_eq!((status.state(2), status.generations.len()), ("active", 2), "{status:?}");
    Ok(())
}

/// An operator who sees what no probe does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_by_hand_undoes_the_switch() -> anyhow::Result<()> {
    let under = UnderLoad::start(&LONG).await?;
    under.program.plays(&format!("{ACTIVE}serve"))?;
    under.supervisor.process.signal(Signal::SIGUSR2)?;
    under.supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
    let output = under.supervisor.command("rollback", &[]).await?;
    ensure!(output.status.success(), "rollback ended with {}: {}", output.status, output.stderr);
    assert!(output.stdout.contains("generation 1 is active"), "{}", output.stdout);
    serves_alone(under).await
}

/// Whoever waits for the upgrade learns that somebody else undid it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_by_hand_is_the_outcome_of_the_upgrade() -> anyhow::Result<()> {
    let (supervisor, program) = scenario::serving(&LONG).await?;
    program.plays(&format!("{ACTIVE}serve"))?;
    let upgrade = scenario::upgrade_ends(&supervisor, exit::ROLLED_BACK, &["generation 2", "by request"]);
    let rollback = async {
        supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
        supervisor.command("rollback", &[]).await
    };
    let (upgrade, rollback) = tokio::join!(upgrade, rollback);
    upgrade?;
    assert!(rollback?.status.success());
    Ok(())
}

/// Guards the promise of the drain: who was told to leave is not told to stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_after_the_commit_is_denied() -> anyhow::Result<()> {
    let under = UnderLoad::start(&["--probation", "100ms", "--drain-timeout", "5m"]).await?;
    refused(&under.supervisor).await?;
    under.supervisor.upgrade().await?;
    refused(&under.supervisor).await?;
    assert_eq!(under.supervisor.status().await?.state(2), "active");
    under.unharmed().await?;
    Ok(())
}

async fn refused(supervisor: &Supervisor) -> anyhow::Result<()> {
    let output = supervisor.command("rollback", &[]).await?;
    assert_eq!(output.status.code(), Some(i32::from(exit::DENIED)), "{}", output.stderr);
    assert_eq!(output.stderr.trim().lines().count(), 1, "{}", output.stderr);
    assert!(output.stderr.contains("no upgrade is in its probation"), "{}", output.stderr);
    Ok(())
}

/// Guards what a rollback costs: the sessions of the failed generation, and none of the old one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_costs_the_sessions_of_the_failed_generation_alone() -> anyhow::Result<()> {
    let (supervisor, _program) = scenario::serving(&LONG).await?;
    let server = supervisor.address().await?;
    let old = Session::connect(server).await?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
    let young = Session::connect(server).await?;
    young.echo(b"on the new one").await?;
    supervisor.wait_for("its session", |status| status.sessions(2) == 1).await?;
    assert!(supervisor.command("rollback", &[]).await?.status.success());
    supervisor.wait_for("the old one alone", |status| status.generations.len() == 1).await?;
    old.echo(b"still there").await?;
    let echoed = wait::within(Duration::from_secs(1), "an echo", young.echo(b"gone")).await;
    assert!(!matches!(echoed, Ok(Ok(_))), "somebody took over a session of the failed generation");
    supervisor.wait_for("its own session alone", |status| status.sessions(1) == 1).await?;
    Ok(())
}

/// Guards against a rollback that takes its time: a failed generation gets new clients for as long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_is_rolled_back_within_a_quarter_of_a_second() -> anyhow::Result<()> {
    let (supervisor, program) = scenario::serving(&LONG).await?;
    let server = supervisor.address().await?;
    program.plays(&format!("{ACTIVE}serve"))?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    let status = supervisor.wait_for("the probation", |status| status.state(2) == "active").await?;
    let failing = status.generation(2).and_then(|failing| failing.pid).context("its pid")?;
    tests::process::signal_process(failing, Signal::SIGKILL)?;
    let killed = Instant::now();
    supervisor.process.wait_for_line("generation 2 was rolled back", PATIENCE).await?;
    let took = killed.elapsed();
    assert!(took < Duration::from_millis(250), "{took:?}");
    drop(Session::connect(server).await?);
    Ok(())
}

/// Guards all of standby: it accepts on no stream listener, resumes on every listener after the rollback, and its
/// sessions have not heard a GOAWAY.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_resumes_on_every_listener_and_has_sent_no_goaway() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(LONG);
    let path = setup.folder().join("relay.sock").to_string_lossy().into_owned();
    let args = ["--listen-tcp-bind", "127.0.0.1:0", "--listen-unix-bind", &path];
    let program = Replaceable::new(setup.folder());
    program.becomes(&program::relay()?, &[&relay::OPEN[..], &args].concat())?;
    let exec = program.path().to_owned();
    let supervisor = setup.exec(exec).serve().await?;
    let status = scenario::status(&supervisor).await?;
    let listener = |kind: &str| -> anyhow::Result<&Value> {
        let mut all = status["listeners"].as_array().context("listeners")?.iter();
        all.find(|one| one["kind"] == kind).with_context(|| format!("no {kind} in {status}"))
    };
    let tcp: SocketAddr = listener("tcp")?["address"].as_str().context("an address")?.parse()?;
    let members = &listener("quic")?["members"];
    let server = supervisor.address().await?;
    let sink = origin();
    let session = WebTransport::connect(server, &Media::subscribe(&sink)).await?;
    accepts(tcp, Path::new(&path)).await?;

    let quic = format!("quic [::]:0 {members}\nname quic");
    let streams = format!("tcp 127.0.0.1:0\nname tcp\nunix {path}\nname unix");
    program.plays(&format!("{quic}\n{streams}\nhello\nadopt\nready\nactivated\nserve"))?;
    supervisor.process.signal(Signal::SIGUSR2)?;
    supervisor.wait_for("the probation", |status| status.state(1) == "standby").await?;
    // Whoever is neither accepted nor refused waits in the backlog.
    let mut waiting = UnixStream::connect(&path).await?;
    let early = wait::within(Duration::from_secs(1), "a greeting", waiting.read_u8()).await;
    assert!(early.is_err(), "somebody on standby has accepted: {early:?}");

    assert!(supervisor.command("rollback", &[]).await?.status.success());
    supervisor.wait_for("the relay alone", |status| status.generations.len() == 1).await?;
    wait::within(PATIENCE, "a greeting of the one who waited", waiting.read_u8()).await??;
    accepts(tcp, Path::new(&path)).await?;
    drop(WebTransport::connect(server, &Media::subscribe(&sink)).await?);
    assert!(session.is_open() && !session.told());
    Ok(())
}

/// A relay speaks first to whom it accepts: qmux begins with its settings.
async fn accepts(tcp: SocketAddr, path: &Path) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(tcp).await?;
    wait::within(PATIENCE, "a greeting over TCP", stream.read_u8()).await??;
    let mut stream = UnixStream::connect(path).await?;
    wait::within(PATIENCE, "a greeting over the unix socket", stream.read_u8()).await??;
    Ok(())
}
