//! What there is to show, from the core's snapshot.

use crate::control::{
    FailureStatus, GenerationStatus, ListenerStatus, Status, SupervisorStatus, UpgradeStatus, sentence, span,
};
use crate::core::Snapshot;
use crate::core::snapshot::{GenerationView, PhaseView, StageView, UpgradeView};
use std::time::Duration;

/// Puts a whole status together.
pub(super) fn status(
    snapshot: Snapshot,
    supervisor: SupervisorStatus,
    listeners: Vec<ListenerStatus>,
    alarms: Vec<String>,
) -> Status {
    let text = text(&snapshot);
    Status {
        supervisor,
        phase: phase(snapshot.phase).to_owned(),
        text,
        upgrade: snapshot.upgrade.map(|view| upgrade(view, snapshot.queued)),
        last_failure: snapshot
            .last_failure
            .map(|failure| FailureStatus { generation: failure.generation, reason: failure.reason }),
        generations: snapshot.generations.into_iter().map(generation).collect(),
        listeners,
        alarms,
    }
}

/// One sentence for the service manager.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let generations: Vec<GenerationStatus> = snapshot.generations.iter().cloned().map(generation).collect();
    sentence(&generations, trouble(snapshot).as_deref())
}

fn trouble(snapshot: &Snapshot) -> Option<String> {
    let because =
        snapshot.last_failure.as_ref().map(|failure| format!("generation {}: {}", failure.generation, failure.reason));
    match snapshot.phase {
        PhaseView::Failed { attempts, next, stand_in } => {
            let mut line = match attempts {
                0 => "failed: the active generation has crashed".to_owned(),
                1 => "failed: a respawn ended before it was ready".to_owned(),
                more => format!("failed: {more} respawns ended before they were ready"),
            };
            if let Some(next) = next {
                line = format!("{line}, the next in {}", span(next));
            }
            if let Some(generation) = stand_in {
                line = format!("{line}, generation {generation} stands in");
            }
            if let Some(because) = because {
                line = format!("{line}; {because}");
            }
            Some(line)
        }
        // Until a later one succeeds.
        PhaseView::Serving => {
            let failed = snapshot.last_failure.as_ref().map(|failure| failure.generation);
            because.filter(|_| failed > snapshot.active).map(|because| format!("last failure: {because}"))
        }
        PhaseView::Stopping => Some("stopping".to_owned()),
        PhaseView::Leaving => Some("leaving".to_owned()),
        PhaseView::Idle | PhaseView::Starting | PhaseView::Ended => None,
    }
}

fn phase(phase: PhaseView) -> &'static str {
    match phase {
        PhaseView::Idle => "idle",
        PhaseView::Starting => "starting",
        PhaseView::Serving => "serving",
        PhaseView::Failed { .. } => "failed",
        PhaseView::Stopping => "stopping",
        PhaseView::Leaving => "leaving",
        PhaseView::Ended => "ended",
    }
}

fn upgrade(view: UpgradeView, again: bool) -> UpgradeStatus {
    let phase = match view.stage {
        StageView::MakingRoom => "making_room",
        StageView::Checking => "checking",
        StageView::Starting => "starting",
        StageView::Switching => "switching",
        StageView::Probation => "probation",
    };
    UpgradeStatus {
        generation: view.generation,
        phase: phase.to_owned(),
        deadline_ms: view.left.map(milliseconds),
        again,
    }
}

fn generation(view: GenerationView) -> GenerationStatus {
    let stats = view.stats;
    GenerationStatus {
        generation: view.generation,
        state: view.state.as_str().to_owned(),
        pid: view.pid,
        program: view.program.map(|program| match view.version {
            Some(version) => format!("{program} {version}"),
            None => program,
        }),
        deadline_ms: view.left.map(milliseconds),
        sessions: stats.sessions,
        setup: stats.setup,
        handshakes: stats.handshakes,
        told: stats.told,
        left: stats.left,
        forced: stats.forced,
        foreign: stats.foreign,
        unhealthy: view.unhealthy,
        unreachable: view.unreachable,
        traffic: stats.traffic,
    }
}

/// Of the supervisor itself.
pub(super) fn supervisor(uptime: Duration, program: &std::ffi::OsStr) -> SupervisorStatus {
    SupervisorStatus {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ms: milliseconds(uptime),
        program: program.to_string_lossy().into_owned(),
    }
}

/// Saturates after 584 million years.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::snapshot::FailureView;
    use protocol::message::Generation;

    fn snapshot(phase: PhaseView, active: u32, failed: Option<u32>) -> Snapshot {
        let failure =
            |number| FailureView { generation: Generation(number), reason: "it hung".to_owned(), status: None };
        Snapshot {
            phase,
            active: Some(Generation(active)),
            generations: Vec::new(),
            upgrade: None,
            queued: false,
            last_failure: failed.map(failure),
            gro: true,
        }
    }

    #[test]
    fn a_failed_upgrade_is_told_until_a_later_one_succeeds() {
        assert_eq!(
            text(&snapshot(PhaseView::Serving, 1, Some(2))),
            "no generation; last failure: generation 2: it hung"
        );
        assert_eq!(text(&snapshot(PhaseView::Serving, 3, Some(2))), "no generation");
        assert_eq!(text(&snapshot(PhaseView::Serving, 3, None)), "no generation");
    }

    #[test]
    fn an_outage_says_what_was_tried_and_what_is_next() {
        let failed = |attempts, next: Option<u64>, stand_in: Option<u32>| {
            let next = next.map(Duration::from_secs);
            let phase = PhaseView::Failed { attempts, next, stand_in: stand_in.map(Generation) };
            text(&snapshot(phase, 1, Some(4)))
        };
        let crashed = "no generation; failed: the active generation has crashed; generation 4: it hung";
        assert_eq!(failed(0, None, None), crashed);
        let third = "no generation; failed: 3 respawns ended before they were ready, the next in 8 s, generation 2 stands \
                     in; generation 4: it hung";
        assert_eq!(failed(3, Some(8), Some(2)), third);
    }
}
