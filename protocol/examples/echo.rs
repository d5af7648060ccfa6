//! A supervised QUIC server: sends back what comes on each bidirectional stream.
//!
//! `moq-supervise --exec target/debug/examples/echo -- [::]:4433`; upgrade it as often as you like, its sessions stay.

use anyhow::Context;
use protocol::child::{self, Unadopted};
use protocol::message::{Hello, Wanted};
use protocol::quinn::{Server, Session};
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

fn main() -> anyhow::Result<()> {
    let child = child::from_env()?.context("start the echo server: it only runs under moq-supervise")?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(child))
}

async fn serve(child: Unadopted) -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "[::]:0".to_owned());
    let hello = Hello::new("echo", env!("CARGO_PKG_VERSION"), vec![Wanted::quic("echo", address, 1)]);
    let hello = Hello { ledger: true, ..hello };
    let (supervisor, adoption) = child.hello(hello).await?;

    // The first generation makes a certificate, and the later ones get it from the supervisor.
    let identity = match adoption.kept.get("identity") {
        Some(kept) => kept.to_vec(),
        None => {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
            let pem = made.cert.pem() + &made.signing_key.serialize_pem();
            supervisor.keep("identity", pem.as_bytes())?;
            pem.into_bytes()
        }
    };
    let certificate = CertificateDer::from_pem_slice(&identity)?;
    let config = quinn::ServerConfig::with_single_cert(vec![certificate], PrivateKeyDer::from_pem_slice(&identity)?)?;

    let mut server = Server::start(supervisor, adoption, &config)?;
    while let Some(session) = server.accept().await {
        tokio::spawn(echo(session));
    }
    Ok(())
}

async fn echo(session: Session) {
    while let Ok((mut send, mut recv)) = session.accept_bi().await {
        tokio::spawn(async move { tokio::io::copy(&mut recv, &mut send).await });
    }
}
