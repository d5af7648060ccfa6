//! Status in words.

use super::{GenerationStatus, Status};
use std::fmt::Write as _;
use std::time::Duration;

/// One sentence, such as "generation 7 active, 812 sessions; generation 6 draining, 41 left, 3 m 10 s".
///
/// `trouble` goes last: what an operator should know besides.
#[must_use]
pub fn sentence(generations: &[GenerationStatus], trouble: Option<&str>) -> String {
    let mut parts: Vec<String> = generations.iter().rev().map(clause).collect();
    if parts.is_empty() {
        parts.push("no generation".to_owned());
    }
    parts.extend(trouble.map(str::to_owned));
    parts.join("; ")
}

fn clause(generation: &GenerationStatus) -> String {
    let GenerationStatus { generation: number, state, sessions, deadline_ms, .. } = generation;
    let mut text = format!("generation {number} {state}");
    match state.as_str() {
        "starting" => {}
        "draining" => {
            // A String never refuses.
            let _ = write!(text, ", {sessions} left");
        }
        _ => {
            let _ = write!(text, ", {sessions} session{}", if *sessions == 1 { "" } else { "s" });
        }
    }
    if let Some(left) = deadline_ms {
        let _ = write!(text, ", {}", span(Duration::from_millis(*left)));
    }
    text
}

/// A duration to the second, in at most two units: "3 m 10 s", "2 h 5 m", "0 s".
#[must_use]
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} m {s} s"),
        (0, h, m, _) => format!("{h} h {m} m"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

/// The whole status as a table for a terminal.
#[must_use]
pub fn table(status: &Status) -> String {
    let supervisor = &status.supervisor;
    let uptime = span(Duration::from_millis(supervisor.uptime_ms));
    let mut text = format!("{}\n\n", status.text);
    let _ = writeln!(
        text,
        "supervisor  pid {}, version {}, up {uptime}, runs {}",
        supervisor.pid, supervisor.version, supervisor.program
    );
    for listener in &status.listeners {
        let members = if listener.members == 1 { String::new() } else { format!(", {} members", listener.members) };
        let _ = writeln!(text, "listener    {} {} {}{members}", listener.name, listener.kind, listener.address);
    }
    if let Some(upgrade) = &status.upgrade {
        let again = if upgrade.again { ", another one follows" } else { "" };
        let number = upgrade.generation.map_or_else(|| "the next generation".to_owned(), |n| format!("generation {n}"));
        let _ = writeln!(text, "upgrade     to {number}: {}{again}", upgrade.phase.replace('_', " "));
    }
    if let Some(failure) = &status.last_failure {
        let _ = writeln!(text, "failed      generation {}: {}", failure.generation, failure.reason);
    }
    for alarm in &status.alarms {
        let _ = writeln!(text, "alarm       {alarm}");
    }
    let rows: Vec<[String; 9]> = status.generations.iter().map(row).collect();
    let head = ["GENERATION", "STATE", "PID", "SESSIONS", "HANDSHAKES", "TOLD", "LEFT", "FORCED", "DEADLINE"];
    let widths: [usize; 9] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).fold(head[column].len(), usize::max));
    text.push('\n');
    for cells in std::iter::once(head.map(str::to_owned)).chain(rows) {
        let line: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(generation: &GenerationStatus) -> [String; 9] {
    let dash = || "-".to_owned();
    [
        generation.generation.to_string(),
        generation.state.clone(),
        generation.pid.map_or_else(dash, |pid| pid.to_string()),
        generation.sessions.to_string(),
        generation.handshakes.to_string(),
        generation.told.to_string(),
        generation.left.to_string(),
        generation.forced.to_string(),
        generation.deadline_ms.map_or_else(dash, |left| span(Duration::from_millis(left))),
    ]
}
