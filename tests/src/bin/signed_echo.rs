//! A supervised echo server that tells each session who serves it: the number of its process and, if it is going to die while
//! it serves, that, on a stream of its own.
//!
//!     signed_echo ADDRESS [MILLISECONDS THAT IT LIVES]

use anyhow::Context as _;
use protocol::child;
use protocol::message::{Hello, Wanted};
use protocol::quinn::{Server, Session};
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().context("an address")?;
    let lives = args.next().map(|number| number.parse()).transpose()?.map(Duration::from_millis);
    let child = child::from_env()?.context("it runs under moq-supervise only")?;
    let hello = Hello::new("signed_echo", env!("CARGO_PKG_VERSION"), vec![Wanted::quic("echo", address, 1)]);
    let (supervisor, adoption) = child.hello(hello).await?;
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
    if let Some(lives) = lives {
        tokio::spawn(async move {
            tokio::time::sleep(lives).await;
            std::process::abort();
        });
    }
    let signature = format!("{} {}", std::process::id(), if lives.is_some() { "mortal" } else { "lasting" });
    while let Some(session) = server.accept().await {
        tokio::spawn(serve(session, signature.clone()));
    }
    Ok(())
}

async fn serve(session: Session, signature: String) -> anyhow::Result<()> {
    let mut sign = session.open_uni().await?;
    sign.write_all(signature.as_bytes()).await?;
    sign.finish()?;
    while let Ok((mut send, mut recv)) = session.accept_bi().await {
        tokio::spawn(async move { tokio::io::copy(&mut recv, &mut send).await });
    }
    Ok(())
}
