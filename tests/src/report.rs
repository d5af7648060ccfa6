//! The figures of a bench, and whether each is within its bound.

use anyhow::Context as _;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// All figures of a run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    figures: Vec<Figure>,
}

/// One figure.
#[derive(Debug, Serialize)]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// The most that is allowed; absent: for information.
    at_most: Option<f64>,
    holds: bool,
}

impl Report {
    /// Adds a figure for information.
    pub fn note(&mut self, name: &str, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.to_owned(), value, unit, at_most: None, holds: true });
    }

    /// Adds a figure with a bound.
    pub fn bound(&mut self, name: &str, value: f64, unit: &'static str, at_most: f64) {
        let holds = value <= at_most;
        self.figures.push(Figure { name: name.to_owned(), value, unit, at_most: Some(at_most), holds });
    }

    /// True if every bound holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.figures.iter().all(|figure| figure.holds)
    }

    /// Writes the figures as JSON.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Figure { name, value, unit, at_most, holds } in &self.figures {
            let bound = at_most.map_or_else(String::new, |most| format!("at most {most}"));
            let verdict = match (at_most, holds) {
                (None, _) => "",
                (Some(_), true) => "ok",
                (Some(_), false) => "TOO MUCH",
            };
            writeln!(f, "{name:<64} {value:>12.2} {unit:<12} {bound:<18} {verdict}")?;
        }
        Ok(())
    }
}

/// A count as a figure; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^53")]
#[must_use]
pub fn count(count: u64) -> f64 {
    count as f64
}

/// Milliseconds as a figure.
#[must_use]
pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// The value below which `share` of all are, by the nearest rank; zero of none.
pub fn quantile(values: &mut [Duration], share: f64) -> Duration {
    values.sort_unstable();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank: between 0 and the length")]
    let rank = (share * count(values.len() as u64)).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}
