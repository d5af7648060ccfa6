//! What the service manager wants to hear again and again: that the loop turns, and that a slow start or stop goes on.

use super::notify::Notify;
use crate::core::snapshot::{PhaseView, StateView};
use crate::core::{Snapshot, Time};
use std::ffi::OsString;
use std::time::Duration;

/// From one EXTEND_TIMEOUT_USEC to the next.
const EXTEND_INTERVAL: Duration = Duration::from_secs(3);
/// So long the manager waits for the next one.
const EXTENSION: Duration = Duration::from_secs(15);

/// Since they are sent by the loop, they show that it turns.
#[derive(Debug)]
pub(super) struct Beats {
    /// Half of what the manager allows.
    watchdog: Option<Duration>,
    watchdog_at: Time,
    extend_at: Time,
    /// READY=1 was said: the start is over.
    started: bool,
}

impl Beats {
    /// As WATCHDOG_USEC says, if it is for us (sd_watchdog_enabled(3)).
    pub(super) fn new(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let ours = variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(std::process::id().into());
        let limit = number("WATCHDOG_USEC").filter(|limit| ours && *limit > 0);
        let watchdog = limit.map(|limit| Duration::from_micros(limit) / 2);
        Self { watchdog, watchdog_at: Time::default(), extend_at: Time::default(), started: false }
    }

    /// READY=1 was said.
    pub(super) fn started(&mut self) {
        self.started = true;
    }

    /// Says what is due.
    pub(super) fn beat(&mut self, now: Time, snapshot: &Snapshot, notify: &mut Notify) {
        if let Some(interval) = self.watchdog.filter(|_| self.watchdog_at <= now) {
            notify.say("WATCHDOG=1");
            self.watchdog_at = now.after(interval);
        }
        if !self.goes_on(snapshot) {
            // The first one of what begins next comes at once: a unit's limit may be shorter than the interval.
            self.extend_at = now;
        } else if self.extend_at <= now {
            notify.say(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
            self.extend_at = now.after(EXTEND_INTERVAL);
        }
    }

    /// When the next one is due.
    pub(super) fn due(&self, snapshot: &Snapshot) -> Option<Time> {
        let watchdog = self.watchdog.map(|_| self.watchdog_at);
        watchdog.into_iter().chain(self.goes_on(snapshot).then_some(self.extend_at)).min()
    }

    /// Whether the manager's own limit for a start or stop is not to be applied: a generation is within the time that it was
    /// given, which ends by itself.
    fn goes_on(&self, snapshot: &Snapshot) -> bool {
        let within = |state: StateView| {
            let mut of = snapshot.generations.iter().filter(move |view| view.state == state);
            of.any(|view| view.left.is_some_and(|left| !left.is_zero()))
        };
        match snapshot.phase {
            PhaseView::Starting => !self.started && within(StateView::Starting),
            PhaseView::Serving => !self.started && (within(StateView::Starting) || snapshot.upgrade.is_some()),
            PhaseView::Stopping => within(StateView::Draining),
            PhaseView::Idle | PhaseView::Failed { .. } | PhaseView::Leaving | PhaseView::Ended => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(variables: &[(&str, &str)]) -> Option<Duration> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        Beats::new(find).watchdog
    }

    /// sd_watchdog_enabled(3): WATCHDOG_PID names whom it is for, which is not us below a shim.
    #[test]
    fn the_watchdog_is_for_whoever_it_names() {
        let [ours, other] = [0, 1].map(|more| (std::process::id() + more).to_string());
        let half = Some(Duration::from_secs(1));
        assert_eq!(watched(&[("WATCHDOG_USEC", "2000000")]), half);
        assert_eq!(watched(&[("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", &ours)]), half);
        assert_eq!(watched(&[("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", &other)]), None);
        assert_eq!(watched(&[("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", "x")]), None);
        for usec in ["0", "", "-1", "soon"] {
            assert_eq!(watched(&[("WATCHDOG_USEC", usec)]), None, "{usec}");
        }
        assert_eq!(watched(&[]), None);
    }
}
