//! What there is to show, from the core's snapshot.

use crate::control::{
    FailureStatus, GenerationStatus, ListenerStatus, Status, SupervisorStatus, UpgradeStatus, sentence, span,
};
use crate::core::snapshot::{GenerationView, PhaseView, StageView, UpgradeView};
use crate::core::{Snapshot, Time};
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
            let mut line = format!("failed: {attempts} respawns ended before they were ready");
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
        PhaseView::Serving => because.map(|because| format!("last failure: {because}")),
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
pub(super) fn supervisor(now: Time, program: &std::ffi::OsStr) -> SupervisorStatus {
    SupervisorStatus {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ms: milliseconds(now.elapsed()),
        program: program.to_string_lossy().into_owned(),
    }
}

/// Saturates after 584 million years.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
