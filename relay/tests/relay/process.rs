//! A real `moq-relay` process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running relay. Dropping it kills it.
pub(crate) struct Relay {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Relay {
    /// Starts a relay with two workers and a generated certificate, on any port, with further arguments.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_moq-relay"))
            .args(["--listen", "127.0.0.1:0", "--listen-tls-generate", "localhost", "--runtime-workers", "2"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the relay starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // Ends with the process.
            for line in stderr.lines().map_while(Result::ok) {
                drop(sender.send(line));
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line of its log.
    pub(crate) fn line(&mut self, part: &str) -> String {
        if let Some(line) = self.seen.iter().find(|line| line.contains(part)) {
            return line.clone();
        }
        let deadline = Instant::now() + PATIENCE;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
        let seen = self.seen.join("\n");
        unreachable!("no line with {part:?} within {PATIENCE:?}, but:\n{seen}")
    }

    /// The value of a field in the first line that contains `part`.
    pub(crate) fn field(&mut self, part: &str, name: &str) -> String {
        let line = self.line(part);
        let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.expect("the field is in the line").to_owned()
    }

    /// Where it serves QUIC.
    pub(crate) fn quic(&mut self) -> SocketAddr {
        self.field("listening for QUIC", "address").parse().expect("an address")
    }

    /// Waits until so many sessions are open: a client's side of the setup ends before the relay's.
    pub(crate) fn sessions(&mut self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.signal(nix::sys::signal::Signal::SIGUSR1);
            let wanted = format!("sessions: {count},");
            while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(100)) {
                self.seen.push(line.clone());
                if line.contains("snapshot role") && line.contains(&wanted) {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "no {count} sessions within {PATIENCE:?}");
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("it runs");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "it has not ended within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
