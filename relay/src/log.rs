//! Logging: one line per event on standard error, nothing on standard output.

use crate::config;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;

/// Lines that wait for a slow standard error; more are dropped, since a stuck terminal or journal must not stop media.
const LINES: usize = 4_096;

/// Logs until it is dropped; then it flushes.
#[derive(Debug)]
pub(crate) struct Logging {
    _writer: WorkerGuard,
}

/// Starts logging. Spawns the thread that writes; does nothing more when the process already logs.
#[must_use]
pub(crate) fn init(settings: &config::Log) -> Logging {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES)
        .lossy(true)
        .thread_name("log")
        .finish(std::io::stderr());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(false)
        // One filter: of two in a row, an event that the outer one drops takes the thread's next one with it.
        .with_filter(settings.filter().and(filter_fn(config::Log::is_safe)));
    let subscriber = tracing_subscriber::registry().with(lines);
    // An embedding process (a test) may have its own.
    drop(tracing::subscriber::set_global_default(subscriber));
    Logging { _writer: guard }
}
