//! The log: one line per event on standard error, written by a thread of its own, so that a stuck terminal or journal
//! stops nothing. Lines that find the queue full are lost.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// A burst of a whole handoff of 16 generations is well below; at 200 bytes a line it is 200 kB.
const QUEUED_LINES: usize = 1_024;

/// The running log. Dropping it writes what is queued, for at most about a second.
#[derive(Debug)]
pub(super) struct Log {
    progress: Arc<Progress>,
    _worker: WorkerGuard,
}

/// Bytes, since the start.
#[derive(Debug, Default)]
struct Progress {
    queued: AtomicU64,
    written: AtomicU64,
}

impl Log {
    /// Starts it.
    ///
    /// A service manager stamps lines itself (JOURNAL_STREAM, systemd.exec(5)), so there is a time only without one.
    pub(super) fn start(filter: Targets, stamped: bool) -> Self {
        let progress = Arc::new(Progress::default());
        let builder = NonBlockingBuilder::default().buffered_lines_limit(QUEUED_LINES).lossy(true).thread_name("log");
        let (queue, worker) = builder.finish(Written { progress: Arc::clone(&progress) });
        let writer = Queued { queue, progress: Arc::clone(&progress) };
        let layer = fmt::layer().with_writer(writer).with_target(false).with_ansi(io::stderr().is_terminal());
        let layer =
            if stamped { layer.without_time().with_filter(filter).boxed() } else { layer.with_filter(filter).boxed() };
        // Fails only when a log has been started before: a second supervisor in one process (tests) shares it.
        let _ = tracing_subscriber::registry().with(layer).try_init();
        Self { progress, _worker: worker }
    }

    /// Waits until what was said is written, at most for `limit`: lines that found the queue full never are.
    pub(super) async fn flush(&self, limit: Duration) {
        let wanted = self.progress.queued.load(Relaxed);
        let written = async {
            while self.progress.written.load(Relaxed) < wanted {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(limit, written).await;
    }
}

/// The loop's end of the queue.
#[derive(Clone, Debug)]
struct Queued {
    queue: NonBlocking,
    progress: Arc<Progress>,
}

impl Write for Queued {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.progress.queued.fetch_add(line.len() as u64, Relaxed);
        self.queue.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.queue.flush()
    }
}

impl<'a> MakeWriter<'a> for Queued {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The thread's end of it.
#[derive(Debug)]
struct Written {
    progress: Arc<Progress>,
}

impl Write for Written {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let result = io::stderr().write(line);
        // Of a line that can't be written no more will come.
        let done = result.as_ref().map_or(line.len(), |count| *count);
        self.progress.written.fetch_add(done as u64, Relaxed);
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
