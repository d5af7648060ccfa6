//! A supervisor as far as one child can tell.

use protocol::channel::{Channel, Received, RecvError, sealed_memfd};
use protocol::child::FD_VARIABLE;
use protocol::keys::{BootId, Secret};
use protocol::message::{Adopt, Adopted, DrainSettings, FromChild, Generation, Hello, Stats, ToChild};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::Interest;
use tokio::process::{Child, Command};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// An example of this package, as the test's own build made it.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing: build with --features quinn --examples", path.display());
    path
}

pub(crate) struct Supervised {
    process: Child,
    channel: Channel,
    /// The same socket, to wait on.
    readable: tokio::net::UnixDatagram,
}

/// What a child is handed.
pub(crate) struct Grant {
    pub(crate) generation: u32,
    pub(crate) kept: Vec<(String, Vec<u8>)>,
    pub(crate) listeners: Vec<(Adopted, Vec<OwnedFd>)>,
    pub(crate) drain_timeout: Duration,
}

impl Supervised {
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        let (channel, end) = Channel::pair().unwrap();
        let process = Command::new(program)
            .args(arguments)
            .env(FD_VARIABLE, "0")
            .stdin(Stdio::from(OwnedFd::from(end)))
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let copy = UnixDatagram::from(channel.as_fd().try_clone_to_owned().unwrap());
        Self { process, channel, readable: tokio::net::UnixDatagram::from_std(copy).unwrap() }
    }

    pub(crate) fn send(&self, message: &ToChild) {
        self.channel.send(message, &[]).unwrap();
    }

    pub(crate) fn send_raw(&self, record: &[u8]) {
        self.channel.send_raw(record, &[]).unwrap();
    }

    /// The next message; `None`: the child closed its end.
    pub(crate) async fn recv(&self) -> Option<(FromChild, Vec<OwnedFd>)> {
        let received = self.readable.async_io(Interest::READABLE, || match self.channel.recv::<FromChild>() {
            Err(RecvError::WouldBlock) => Err(std::io::ErrorKind::WouldBlock.into()),
            received => Ok(received.unwrap()),
        });
        match in_time("a message of the child", received).await.unwrap()? {
            Received::Message { message, fds } => Some((message, fds)),
            Received::Unknown { message } => panic!("unknown message {message}"),
        }
    }

    /// The next message that is not counters.
    pub(crate) async fn expect(&self) -> (FromChild, Vec<OwnedFd>) {
        loop {
            let (message, fds) = self.recv().await.expect("the child to be there");
            if !matches!(message, FromChild::Stats(_)) {
                return (message, fds);
            }
        }
    }

    /// The next counters that fit.
    pub(crate) async fn stats(&self, what: &str, fit: impl Fn(&Stats) -> bool) -> Stats {
        let next = async {
            loop {
                let (message, _) = self.recv().await.expect("the child to be there");
                if let FromChild::Stats(stats) = message
                    && fit(&stats)
                {
                    return stats;
                }
            }
        };
        in_time(what, next).await
    }

    pub(crate) async fn hello(&self) -> Hello {
        let (FromChild::Hello(hello), _) = self.expect().await else { panic!("no hello") };
        hello
    }

    /// One `adopt` message per listener and one more, to see that children take several.
    pub(crate) fn adopt(&self, grant: Grant) {
        let boot = BootId::from_bytes([2; 16]);
        let generation = Generation(grant.generation);
        let keys = Secret::from_bytes([1; 32]).child_keys(&boot, generation);
        let mut first = vec![sealed_memfd("keys", &keys.to_bytes()).unwrap()];
        let (names, secrets): (Vec<_>, Vec<_>) = grant.kept.into_iter().unzip();
        first.extend(secrets.iter().map(|secret| sealed_memfd("kept", secret).unwrap()));
        let adopt = |kept, sockets, more| Adopt {
            protocol: 1,
            generation,
            kept,
            sockets,
            gro: true,
            drain: DrainSettings {
                timeout_ms: u64::try_from(grant.drain_timeout.as_millis()).unwrap(),
                spread_ms: None,
            },
            ledger: false,
            older_live: false,
            links: 0,
            more,
        };
        let send = |adopt, fds: &[OwnedFd]| {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            self.channel.send(&ToChild::Adopt(adopt), &fds).unwrap();
        };
        send(adopt(names, vec![], true), &first);
        for (adopted, fds) in grant.listeners {
            send(adopt(vec![], vec![adopted], true), &fds);
        }
        send(adopt(vec![], vec![], false), &[]);
    }

    /// Sends a role message and waits for its ack.
    pub(crate) async fn role(&self, message: &ToChild, seq: u64) {
        self.send(message);
        assert_eq!(self.expect().await.0, FromChild::Ack { seq }, "{message:?}");
    }

    /// Closes the channel as a supervisor that is gone does.
    pub(crate) fn leave(self) -> Child {
        self.process
    }

    pub(crate) async fn exit(&mut self) -> ExitStatus {
        in_time("the child to end", self.process.wait()).await.unwrap()
    }
}
