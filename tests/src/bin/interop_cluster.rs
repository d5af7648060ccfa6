//! A cluster of three of our relays and one of today's, upgraded while media passes from one end to the other and back.
//!
//! ```text
//! ours 1 ◄──dials── ours 2 ──dials──► today's ──dials──► ours 3
//! ```
//!
//! So today's moq-relay is a peer in both directions: it is dialed, and it dials one that drains. It knows no public
//! rules beside a token, so `moq auth serve` decides for it, as its documentation says. Ends with 1 unless no frame is
//! missing.

use anyhow::{Context as _, ensure};
use clap::Parser;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tests::client::flow::Flow;
use tests::process::{Launch, Process};
use tests::supervisor::{Setup, Supervisor};
use tests::wait::{self, PATIENCE};
use tests::{program, relay};

/// Frames a second of each publisher.
const RATE: u32 = 60;

#[derive(Parser)]
#[command(about = "Upgrade a cluster of three of our relays and one of today's under media")]
struct Args {
    /// Today's moq-relay.
    #[arg(long, default_value = "target/peers/bin/moq-relay")]
    moq_relay: PathBuf,
    /// Today's moq, for its auth server.
    #[arg(long, default_value = "target/peers/bin/moq")]
    moq: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut out = std::io::stdout();
    match run(&Args::parse(), &mut out).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(out, "FAIL  {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let auth = Auth::start(&args.moq, folder.path()).await?;
    let first = ours(&auth, &[]).await?;
    let third = ours(&auth, &[]).await?;
    let today = today(&args.moq_relay, &auth, third.address().await?).await?;
    let second = ours(&auth, &[first.address().await?, today.address]).await?;
    let connected = || Ok(second.process.count("peer connected") == 2);
    wait::until(PATIENCE, "ours 2 has both links", connected).await.with_context(|| second.process.tail())?;

    let (near, far) = (first.address().await?, third.address().await?);
    let flows = [Flow::start("down", RATE, near, far).await?, Flow::start("up", RATE, far, near).await?];
    let nodes = [("ours 1", &first), ("ours 2", &second), ("ours 3", &third)];
    check(&flows, "before any upgrade", out).await?;
    for (name, node) in nodes {
        node.upgrade().await.with_context(|| format!("upgrading {name}"))?;
        check(&flows, &format!("after the upgrade of {name}"), out).await?;
    }
    let (one, two, three) = tokio::join!(first.upgrade(), second.upgrade(), third.upgrade());
    for upgraded in [one, two, three] {
        upgraded?;
    }
    check(&flows, "after the upgrade of all three at once", out).await?;
    for (name, node) in nodes {
        let alone = node.wait_for("one generation", |status| status.generations.len() == 1).await;
        alone.with_context(|| format!("the end of the old generations of {name}"))?;
    }
    check(&flows, "after the end of all old generations", out).await?;
    // Today's relay was dialed once by each of three generations, and moved itself three times.
    ensure!(
        today.process.count("upstream GOAWAY; migrating") >= 2,
        "today's relay never moved: {}",
        today.process.tail()
    );
    writeln!(out, "ok    today's relay moved make-before-break at each drain of ours 3")?;
    Ok(())
}

async fn check(flows: &[Flow], when: &str, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    for flow in flows {
        let report = flow.check().await.with_context(|| when.to_owned())?;
        writeln!(
            out,
            "ok    {when}: {} frames, none missing, {} twice, longest gap {:?}",
            report.received, report.duplicates, report.longest_gap
        )?;
    }
    Ok(())
}

/// The auth server, and the token that it takes for a peer's.
struct Auth {
    _process: Process,
    address: SocketAddr,
    token: String,
    token_file: PathBuf,
}

impl Auth {
    async fn start(moq: &Path, folder: &Path) -> anyhow::Result<Self> {
        let key = folder.join("key");
        let everything = ["--publish", "**", "--subscribe", "**"];
        let moq = Launch::new(moq);
        let generated = moq.clone().args(["auth", "generate", "--out"]).args([&key]).run(PATIENCE).await?;
        ensure!(generated.status.success(), "moq auth generate: {}", generated.stderr);
        let signed = moq.clone().args(["auth", "sign", "--key"]).args([&key]).args(everything).run(PATIENCE).await?;
        ensure!(signed.status.success(), "moq auth sign: {}", signed.stderr);
        let token = signed.stdout.trim().to_owned();
        let token_file = folder.join("token");
        std::fs::write(&token_file, &token)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, relay::lasting_port()?));
        let public = ["--public-publish", "**", "--public-subscribe", "**"];
        let serve = moq.args(["auth", "serve", "--listen", &address.to_string(), "--key"]).args([&key]).args(public);
        let process = serve.start()?;
        wait::until(PATIENCE, "the auth server answers", || Ok(std::net::TcpStream::connect(address).is_ok()))
            .await
            .with_context(|| process.tail())?;
        Ok(Self { _process: process, address, token, token_file })
    }
}

async fn ours(auth: &Auth, peers: &[SocketAddr]) -> anyhow::Result<Supervisor> {
    let mut child = vec!["--cluster-token".to_owned(), auth.token_file.display().to_string()];
    for peer in peers {
        child.extend(["--cluster-connect".to_owned(), format!("https://{peer}/")]);
    }
    if !peers.is_empty() {
        child.push("--connect-tls-insecure".to_owned());
    }
    let flags = ["--probation", "500ms", "--drain-timeout", "20s"];
    Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).child(child).serve().await
}

struct Today {
    process: Process,
    address: SocketAddr,
}

async fn today(program: &Path, auth: &Auth, peer: SocketAddr) -> anyhow::Result<Today> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, relay::lasting_port()?));
    let process = Launch::new(program)
        .args(["--listen", &address.to_string(), "--listen-tls-generate", "localhost"])
        .args(["--auth-url", &format!("http://{}", auth.address), "--connect-tls-insecure=true"])
        .args(["--cluster-connect", &format!("https://{peer}/?jwt={}", auth.token)])
        .start()?;
    process.wait_for_line("connected", PATIENCE).await.context("today's relay dials ours 3")?;
    Ok(Today { process, address })
}
