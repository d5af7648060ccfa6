//! Status as metrics.

use super::{GenerationStatus, Status};
use std::fmt::Write as _;

/// The phases of a supervisor, as `status --json` calls them.
const PHASES: [&str; 7] = ["idle", "starting", "serving", "failed", "stopping", "leaving", "ended"];

/// One figure of each generation: its name, its type and help, and where it is.
type Figure = (&'static str, &'static str, &'static str, fn(&GenerationStatus) -> u64);

const FIGURES: [Figure; 7] = [
    ("sessions", "gauge", "Sessions that are open.", |one| one.sessions),
    ("setup", "gauge", "Connections in setup.", |one| one.setup),
    ("handshakes_total", "counter", "Handshakes completed.", |one| one.handshakes),
    ("told_total", "counter", "Sessions told to go.", |one| one.told),
    ("left_total", "counter", "Told sessions that left by themselves.", |one| one.left),
    ("forced_total", "counter", "Sessions closed by the drain deadline.", |one| one.forced),
    ("foreign_total", "counter", "Packets of another member or generation.", |one| one.foreign),
];

/// The text format of Prometheus (version 0.0.4), for a scraper's textfile collector.
#[must_use]
pub fn metrics(status: &Status) -> String {
    let mut text = String::new();
    head(&mut text, "phase", "gauge", "1 for the phase of the service, 0 for the others.");
    for phase in PHASES {
        line(&mut text, "phase", &format!("phase=\"{phase}\""), u64::from(status.phase == phase));
    }
    head(&mut text, "uptime_seconds", "gauge", "Since the start of the supervisor.");
    line(&mut text, "uptime_seconds", "", status.supervisor.uptime_ms / 1_000);
    head(&mut text, "alarms", "gauge", "What an operator should look at.");
    line(&mut text, "alarms", "", status.alarms.len() as u64);
    head(&mut text, "last_failure_generation", "gauge", "The last generation that failed since the start; 0 for none.");
    let failed = status.last_failure.as_ref().map_or(0, |failure| u64::from(failure.generation.0));
    line(&mut text, "last_failure_generation", "", failed);
    head(&mut text, "generation", "gauge", "1 for each live generation, with its state.");
    for one in &status.generations {
        line(&mut text, "generation", &format!("generation=\"{}\",state=\"{}\"", one.generation, one.state), 1);
    }
    for (name, kind, help, figure) in FIGURES {
        let name = format!("generation_{name}");
        head(&mut text, &name, kind, help);
        for one in &status.generations {
            line(&mut text, &name, &format!("generation=\"{}\"", one.generation), figure(one));
        }
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // A String never refuses.
    let _ = writeln!(text, "# HELP moq_supervise_{name} {help}\n# TYPE moq_supervise_{name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &str, value: u64) {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(text, "moq_supervise_{name}{labels} {value}");
}
