//! The log: one line per event on standard error, written by a thread of its own, so that a stuck terminal or journal
//! stops nothing. Lines that find the queue full are lost.

use std::io::{self, IsTerminal as _};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// A burst of a whole handoff of 16 generations is well below; at 200 bytes a line it is 200 kB.
const QUEUED_LINES: usize = 1_024;

/// Starts the log. Dropping the guard writes what is queued, for at most about a second.
///
/// A service manager stamps lines itself (JOURNAL_STREAM, systemd.exec(5)), so there is a time only without one.
pub(super) fn start(filter: Targets, stamped: bool) -> WorkerGuard {
    let builder = NonBlockingBuilder::default().buffered_lines_limit(QUEUED_LINES).lossy(true).thread_name("log");
    let (writer, guard) = builder.finish(io::stderr());
    let layer = fmt::layer().with_writer(writer).with_target(false).with_ansi(io::stderr().is_terminal());
    let layer =
        if stamped { layer.without_time().with_filter(filter).boxed() } else { layer.with_filter(filter).boxed() };
    // Fails only when a log has been started before: a second supervisor in one process (tests) shares it.
    let _ = tracing_subscriber::registry().with(layer).try_init();
    guard
}
