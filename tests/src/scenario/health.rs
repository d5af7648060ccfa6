//! An HTTP server that says of a generation what the test wants.

use anyhow::Context as _;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What it does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Says 200.
    Well,
    /// Says 503.
    Sick,
    /// Takes the request and says nothing.
    Silent,
    /// Hangs up.
    Gone,
}

/// A health endpoint. Dropping it closes it.
#[derive(Debug)]
pub struct HealthServer {
    address: SocketAddr,
    answer: watch::Sender<Answer>,
    asked: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl HealthServer {
    /// Starts one that says [`Answer::Well`].
    ///
    /// # Errors
    /// No socket.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a health endpoint")?;
        let address = listener.local_addr()?;
        let (answer, answers) = watch::channel(Answer::Well);
        let (count, asked) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Ok((stream, _peer)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                let answer = *answers.borrow();
                tokio::spawn(serve(stream, answer));
            }
        });
        Ok(Self { address, answer, asked, task })
    }

    /// The value for `--health-url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/health", self.address)
    }

    /// What it does from now on.
    pub fn answers(&self, answer: Answer) {
        self.answer.send_replace(answer);
    }

    /// How often it has been asked.
    #[must_use]
    pub fn asked(&self) -> u64 {
        *self.asked.borrow()
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: Answer) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_buf(&mut request).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    let status = match answer {
        Answer::Well => "200 OK",
        Answer::Sick => "503 Service Unavailable",
        Answer::Silent => {
            // Until the other side hangs up.
            let _hung_up = stream.read_buf(&mut request).await;
            return;
        }
        Answer::Gone => return,
    };
    // Who asks may have given up.
    let _sent = stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await;
}
