//! The relay without a supervisor: its workers, its stop, and what it says of bad settings.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::client::handshake;
use tests::client::media::{self, Publisher, Subscriber};
use tests::client::webtransport::{Media, Session};
use tests::process::Launch;
use tests::relay::{OPEN, Relay};
use tests::tls::{self, Seen};
use tests::wait::{self, PATIENCE};
use tests::{procfs, program};

/// Not a MoQ session, only a QUIC connection that never becomes one.
async fn quic_only(relay: &Relay) -> anyhow::Result<(quinn::Endpoint, quinn::Connection)> {
    let endpoint = quinn::Endpoint::client(tests::client::local_for(relay.address))?;
    let config = tls::client(&["h3"], &Seen::default())?;
    let connection = endpoint.connect_with(config, relay.address, "localhost")?.await?;
    Ok((endpoint, connection))
}

/// Guards against workers on different ports, of which clients would find one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn port_zero_is_one_port_for_all_workers() -> anyhow::Result<()> {
    let relay = Relay::start(["--runtime-workers", "4"]).await?;
    let sockets = procfs::udp_inodes(relay.process.pid())?;
    assert_eq!(sockets.len(), 4, "{sockets:?}");
    // Each worker can be reached: clients are spread over them by their own addresses.
    let config = tls::client(&["h3"], &Seen::default())?;
    for _ in 0..40 {
        wait::within(PATIENCE, "a handshake", handshake::once(relay.address, &config)).await??;
    }
    Ok(())
}

/// Guards clients that pin a certificate: whichever worker they reach, it is the same one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_workers_present_one_generated_certificate() -> anyhow::Result<()> {
    let relay = Relay::start(["--runtime-workers", "4"]).await?;
    let mut seen = BTreeSet::new();
    for _ in 0..40 {
        let one = Seen::default();
        handshake::once(relay.address, &tls::client(&["h3"], &one)?).await?;
        seen.insert(one.fingerprint().context("a certificate was presented")?);
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
    Ok(())
}

/// Guards the one origin behind the workers: what is published at one is watched at the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_published_at_one_worker_is_watched_at_all() -> anyhow::Result<()> {
    let relay = Relay::start(["--runtime-workers", "4"]).await?;
    let source = media::origin();
    let _publisher = Publisher::start(&source, "live", 50)?;
    let _publishing = Session::connect(relay.address, &Media::publish(&source)).await?;
    let mut watching = Vec::new();
    for _ in 0..8 {
        let sink = media::origin();
        let session = Session::connect(relay.address, &Media::subscribe(&sink)).await?;
        watching.push((session, Subscriber::start(&sink, "live")));
    }
    for (_session, subscriber) in &watching {
        subscriber.wait_for_all(50, PATIENCE).await?;
    }
    Ok(())
}

/// Guards against a drain that sleeps for its whole time though nobody is there.
#[tokio::test]
async fn a_stop_of_an_empty_relay_ends_at_once() -> anyhow::Result<()> {
    let mut relay = Relay::start(["--drain-timeout", "5m"]).await?;
    relay.process.signal(Signal::SIGTERM)?;
    assert_eq!(relay.process.wait(PATIENCE).await?.code(), Some(0));
    relay.process.wait_for_line("drained", PATIENCE).await?;
    Ok(())
}

/// Guards both ends of a drain: not before the last session has left, and not long after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_when_the_last_session_has_left() -> anyhow::Result<()> {
    let mut relay = Relay::start(["--drain-timeout", "5m"]).await?;
    let sink = media::origin();
    let session = Session::connect(relay.address, &Media::subscribe(&sink)).await?;
    relay.process.signal(Signal::SIGTERM)?;
    session.goaway(PATIENCE).await?;
    ensure!(relay.process.is_running()?, "it ended before its last session");
    drop(session);
    assert_eq!(relay.process.wait(PATIENCE).await?.code(), Some(0));
    relay.process.wait_for_line("drained", PATIENCE).await?;
    Ok(())
}

/// Guards the deadline in the real process, and that the end says what it did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_stays_is_closed_at_the_deadline() -> anyhow::Result<()> {
    let mut relay = Relay::start(["--drain-timeout", "2s"]).await?;
    let sink = media::origin();
    let session = Session::connect(relay.address, &Media::subscribe(&sink)).await?;
    let asked = Instant::now();
    relay.process.signal(Signal::SIGTERM)?;
    let end = session.closed(PATIENCE).await?;
    assert!(asked.elapsed() >= Duration::from_millis(1_500), "{:?}", asked.elapsed());
    assert!(end.to_string().contains("goaway timeout"), "{end}");
    assert_eq!(relay.process.wait(PATIENCE).await?.code(), Some(0));
    relay.process.wait_for_line("deadline: 1 closed", PATIENCE).await?;
    Ok(())
}

/// Guards the operator who does not want to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once() -> anyhow::Result<()> {
    let mut relay = Relay::start(["--drain-timeout", "5m"]).await?;
    let sink = media::origin();
    let session = Session::connect(relay.address, &Media::subscribe(&sink)).await?;
    relay.process.signal(Signal::SIGTERM)?;
    session.goaway(PATIENCE).await?;
    relay.process.signal(Signal::SIGINT)?;
    relay.process.wait(PATIENCE).await?;
    Ok(())
}

/// Guards against sessions that begin on a process that is about to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_accepted_after_a_stop() -> anyhow::Result<()> {
    let relay = Relay::start(["--drain-timeout", "5m"]).await?;
    let sink = media::origin();
    let session = Session::connect(relay.address, &Media::subscribe(&sink)).await?;
    relay.process.signal(Signal::SIGTERM)?;
    session.goaway(PATIENCE).await?;
    // Handshakes that were under way when the signal came are finished for a while; then there is silence.
    let config = tls::client(&["h3"], &Seen::default())?;
    wait::eventually(PATIENCE, "a handshake that gets no answer", async || {
        let tried = tokio::time::timeout(Duration::from_secs(2), handshake::once(relay.address, &config)).await;
        Ok(tried.map_or(Some(()), |outcome| outcome.is_err().then_some(())))
    })
    .await?;
    assert!(session.is_open());
    Ok(())
}

/// Guards handshakes that were accepted just before a stop: they count until their own timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_in_setup_keeps_the_relay_alive_until_its_timeout() -> anyhow::Result<()> {
    let mut relay = Relay::start(["--drain-timeout", "5m", "--listen-timeout", "3s"]).await?;
    let begin = Instant::now();
    let (_endpoint, _connection) = quic_only(&relay).await?;
    relay.process.signal(Signal::SIGTERM)?;
    assert_eq!(relay.process.wait(PATIENCE).await?.code(), Some(0));
    let lived = begin.elapsed();
    assert!((Duration::from_millis(2_500)..Duration::from_secs(15)).contains(&lived), "{lived:?}");
    Ok(())
}

/// Writes a certificate and its key.
fn certificate(folder: &Path, name: &str) -> anyhow::Result<(String, String)> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let path = |ending: &str| folder.join(format!("{name}.{ending}"));
    let (certificate, key) = (path("crt"), path("key"));
    fs::write(&certificate, made.cert.pem())?;
    fs::write(&key, made.signing_key.serialize_pem())?;
    Ok((certificate.to_string_lossy().into_owned(), key.to_string_lossy().into_owned()))
}

/// A certificate of the operator's is read again at SIGHUP, without a new process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_reads_certificates_again() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (certificate_file, key_file) = certificate(folder.path(), "own")?;
    let args = ["--listen", "[::]:0", "--auth-public", "**", "--listen-tls-cert", &certificate_file];
    let args = args.into_iter().chain(["--listen-tls-key", &key_file]);
    let process = Launch::new(program::relay()?).args(args).start()?;
    let relay = Relay::of(process).await?;
    let fingerprint = async || {
        let seen = Seen::default();
        handshake::once(relay.address, &tls::client(&["h3"], &seen)?).await?;
        seen.fingerprint().context("a certificate was presented")
    };
    let before = fingerprint().await?;
    let (other_certificate, other_key) = certificate(folder.path(), "other")?;
    fs::rename(other_certificate, &certificate_file)?;
    fs::rename(other_key, &key_file)?;
    relay.process.signal(Signal::SIGHUP)?;
    wait::eventually(PATIENCE, "another certificate", async || Ok((fingerprint().await? != before).then_some(()))).await
}

/// Settings that can't be used: one line that names the culprit, and the documented status.
#[tokio::test]
async fn settings_that_can_not_be_used() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (certificate_file, key_file) = certificate(folder.path(), "own")?;
    let (_other_certificate, other_key) = certificate(folder.path(), "other")?;
    let file = |name: &str, text: &str| -> anyhow::Result<String> {
        let path = folder.path().join(name);
        fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let no_certificate = file("no.crt", "-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----\n")?;
    let unknown_key = file("key.toml", "[listen]\nbnid = \"[::]:0\"\n")?;
    let no_toml = file("no.toml", "[listen\n")?;
    let listen = ["--listen", "[::]:0", "--auth-public", "**"];
    let with = |more: &[&str]| -> Vec<String> { listen.iter().chain(more).map(|arg| (*arg).to_owned()).collect() };

    let cases: [(Vec<String>, &[&str]); 9] = [
        (with(&["--listen-tls-generate", "localhost", "--draintimeout", "1s"]), &["--draintimeout"]),
        (with(&["--listen-tls-generate", "localhost", "--drain-timeout", "soon"]), &["drain-timeout", "soon"]),
        (vec![unknown_key.clone()], &["bnid", "key.toml"]),
        (vec![no_toml.clone()], &["no.toml"]),
        (vec![folder.path().join("absent.toml").to_string_lossy().into_owned()], &["absent.toml"]),
        (with(&["--listen-tls-cert", &no_certificate, "--listen-tls-key", &key_file]), &["no.crt"]),
        (with(&["--listen-tls-cert", &certificate_file, "--listen-tls-key", &other_key]), &["own.crt", "other.key"]),
        (with(&["--listen-tls-cert", &certificate_file]), &["key"]),
        (with(&["--listen-tls-generate", "localhost", "--iroh-enabled"]), &["--iroh-enabled"]),
    ];
    for (args, culprits) in cases {
        let output = Launch::new(program::relay()?).args(&args).run(PATIENCE).await?;
        let said = output.stderr.trim();
        assert!([1, 2].contains(&output.status.code().unwrap_or(0)), "{args:?}: {} {said}", output.status);
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        for culprit in culprits {
            assert!(said.contains(culprit), "{args:?}: {culprit} is not in {said}");
        }
    }
    Ok(())
}

/// The relay alone does not share a port with another process either.
#[tokio::test]
async fn a_second_relay_on_the_same_port_is_refused() -> anyhow::Result<()> {
    let first = Relay::start([] as [&str; 0]).await?;
    let port = first.address.port().to_string();
    let mut args = OPEN.map(str::to_owned);
    args[1] = format!("[::]:{port}");
    let output = Launch::new(program::relay()?).args(&args).run(PATIENCE).await?;
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    assert!(output.stderr.contains(&port), "{}", output.stderr);
    Ok(())
}
