//! The policy in simulated worlds, where time jumps from event to event.

mod scenarios;
mod walks;
mod world;
mod worlds;

use super::{Backoff, Restart, Settings};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// The defaults.
fn settings(restart: Restart) -> Settings {
    let backoff = Backoff { initial: SECOND, multiplier: 2, max: 5 * SECOND, timeout: Some(10 * SECOND) };
    Settings { restart, once: false, backoff, handover: 10 * SECOND }
}

/// The defaults, with this initial backoff.
fn initial(initial: Duration) -> Settings {
    let settings = settings(Restart::Handoff);
    Settings { backoff: Backoff { initial, ..settings.backoff }, ..settings }
}
