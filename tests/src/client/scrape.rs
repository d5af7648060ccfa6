//! Scrapes of a relay's `/metrics`, one connection each.

use crate::wait::{self, PATIENCE};
use anyhow::{Context as _, ensure};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// The series of one page and their values.
pub type Page = BTreeMap<String, u64>;

/// Gets a page of that path.
///
/// # Errors
/// There is no answer, or another status than 200.
pub async fn get(server: SocketAddr, path: &str) -> anyhow::Result<String> {
    let (status, body) = request(server, "GET", path).await?;
    ensure!(status == 200, "{path}: {status} {body}");
    Ok(body)
}

/// Makes a request of that method and path, and returns the status and the body of the answer.
///
/// # Errors
/// There is no answer, or it is no HTTP.
pub async fn request(server: SocketAddr, method: &str, path: &str) -> anyhow::Result<(u16, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(server).await.context("connecting")?;
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = wait::within(PATIENCE, "an HTTP answer", exchange).await??;
    let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer has a head")?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    Ok((status.with_context(|| format!("a status in {head}"))?, body.to_owned()))
}

/// Scrapes once.
///
/// # Errors
/// As [`get`], or a line that is no series.
pub async fn metrics(server: SocketAddr) -> anyhow::Result<Page> {
    let page = get(server, "/metrics").await?;
    let series = page.lines().filter(|line| !line.starts_with('#'));
    series
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').with_context(|| format!("no series: {line}"))?;
            Ok((name.to_owned(), value.parse().with_context(|| format!("no value: {line}"))?))
        })
        .collect()
}

/// Scrapes without pause, and notes what must not be: a total that goes down or vanishes.
#[derive(Debug)]
pub struct Scraper {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// What a scraper saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How often it was answered.
    pub scrapes: u64,
    /// The last page.
    pub last: Page,
    /// What went down, and scrapes that failed.
    pub wrong: Vec<String>,
}

impl Scraper {
    /// Starts it. Failures count only when `strict`: while nobody is active nobody may answer.
    #[must_use]
    pub fn start(server: SocketAddr, strict: bool) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let sink = seen.clone();
        let task = tokio::spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(20));
            loop {
                pace.tick().await;
                let page = metrics(server).await;
                let mut seen = sink.lock().unwrap_or_else(PoisonError::into_inner);
                match page {
                    Ok(page) => seen.compare(page),
                    Err(error) if strict => seen.wrong.push(format!("{error:#}")),
                    Err(_) => {}
                }
            }
        });
        Self { seen, task }
    }

    /// What it has seen so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Seen {
    fn compare(&mut self, page: Page) {
        self.scrapes += 1;
        for (series, before) in self.last.iter().filter(|(series, _)| series.contains("_total")) {
            match page.get(series) {
                Some(now) if now >= before => {}
                now => self.wrong.push(format!("scrape {}: {series} was {before}, is {now:?}", self.scrapes)),
            }
        }
        self.last = page;
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        self.task.abort();
    }
}
