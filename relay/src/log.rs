//! Logging: one line per event on standard error, nothing on standard output.

use crate::config;
use protocol::message::Generation;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;

/// Lines that wait for a slow standard error; more are dropped, since a stuck terminal or journal must not stop media.
const LINES: usize = 4_096;

/// Logs until it is dropped; then it flushes.
#[derive(Debug)]
pub(crate) struct Logging {
    generation: Arc<OnceLock<Generation>>,
    _writer: WorkerGuard,
}

impl Logging {
    /// Which generation it is, for each line from now on: those that overlap write to one place.
    pub(crate) fn is(&self, generation: Generation) {
        // A process is one generation for ever.
        let _set_before = self.generation.set(generation);
    }
}

/// The time of a line, and whose it is.
struct Stamp(Arc<OnceLock<Generation>>);

impl FormatTime for Stamp {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(line)?;
        match self.0.get() {
            Some(generation) => write!(line, " [{generation}]"),
            None => Ok(()),
        }
    }
}

/// Starts logging. Spawns the thread that writes; does nothing more when the process already logs.
#[must_use]
pub(crate) fn init(settings: &config::Log) -> Logging {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES)
        .lossy(true)
        .thread_name("log")
        .finish(std::io::stderr());
    let generation = Arc::<OnceLock<Generation>>::default();
    let lines = tracing_subscriber::fmt::layer()
        .with_timer(Stamp(generation.clone()))
        .with_writer(writer)
        .with_ansi(false)
        // One filter: of two in a row, an event that the outer one drops takes the thread's next one with it.
        .with_filter(settings.filter().and(filter_fn(config::Log::is_safe)));
    let subscriber = tracing_subscriber::registry().with(lines);
    // An embedding process (a test) may have its own.
    drop(tracing::subscriber::set_global_default(subscriber));
    Logging { generation, _writer: guard }
}
