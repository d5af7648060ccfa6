//! Nodes of a cluster, and media between them.

use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::Path;
use tests::client::native::{self, Scheme};
use tests::process::Launch;
use tests::relay::Relay;
use tests::supervisor::{Setup, Supervisor};
use tests::wait::PATIENCE;
use tests::{program, relay};

/// Frames a second of each publisher.
pub(crate) const RATE: u32 = 50;

/// The token of every cluster with one. Nothing may ever print it.
pub(crate) const TOKEN: &str = "s3cr3t-0f-th3-cl9st3r";

/// The file of that token.
pub(crate) fn token_file() -> anyhow::Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new().context("a file for the token")?;
    std::fs::write(file.path(), format!("{TOKEN}\n")).context("writing the token")?;
    Ok(file)
}

/// The arguments of a node that dials these peers and trusts any certificate.
pub(crate) fn dialing(peers: &[String]) -> Vec<String> {
    let mut args = vec!["--runtime-workers".to_owned(), "2".to_owned()];
    if !peers.is_empty() {
        args.extend(["--connect-tls-insecure".to_owned(), "--cluster-connect".to_owned(), peers.join(",")]);
    }
    args
}

/// The URL of a node at its root.
pub(crate) fn url(scheme: Scheme, server: SocketAddr) -> anyhow::Result<String> {
    Ok(native::url(scheme, server)?.to_string())
}

/// A node without a supervisor. `public`: what anybody may do.
pub(crate) async fn alone(public: &str, args: &[String]) -> anyhow::Result<Relay> {
    with_log("debug,moq_net=info,quinn=info,quinn_proto=info", public, args).await
}

/// As [`alone`], but it logs everything there is. That takes most of its time, so it is for tests without much media.
pub(crate) async fn telltale(public: &str, args: &[String]) -> anyhow::Result<Relay> {
    with_log("trace", public, args).await
}

async fn with_log(log: &str, public: &str, args: &[String]) -> anyhow::Result<Relay> {
    let launch = Launch::new(program::relay()?)
        .args(["--listen", "[::]:0", "--listen-tls-generate", "localhost", "--auth-public", public])
        .args(args)
        .env("RUST_LOG", log);
    Relay::of(launch.start()?).await
}

/// Adds a listener for operators.
pub(crate) fn with_operators(args: &[String]) -> Vec<String> {
    [args, &["--internal-listen", "127.0.0.1:0"].map(str::to_owned)].concat()
}

/// Where operators ask a node that has a listener for them.
pub(crate) async fn operators(node: &Relay) -> anyhow::Result<SocketAddr> {
    let line = node.process.wait_for_line("serving operators", PATIENCE).await?;
    line.split([' ', '=']).find_map(|word| word.parse().ok()).with_context(|| format!("an address in {line}"))
}

/// A supervised node that anybody may use.
pub(crate) async fn supervised(flags: &[&str], args: &[String]) -> anyhow::Result<Supervisor> {
    Setup::new(program::relay()?)?.flags(flags).child(relay::OPEN).child(args).serve().await
}

/// No line of a node may show the token, at whatever level.
pub(crate) fn assert_discreet(nodes: &[&Relay]) {
    for node in nodes {
        let telling: Vec<_> = node.process.lines().into_iter().filter(|line| line.contains(TOKEN)).collect();
        assert!(telling.is_empty(), "{telling:?}");
        assert!(node.process.count("TRACE") > 0, "it logs everything");
    }
}

/// The arguments that make this a member of the cluster with a token.
pub(crate) fn member(token: &Path) -> [String; 2] {
    ["--cluster-token".to_owned(), token.display().to_string()]
}
