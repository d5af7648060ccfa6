//! What any version of the supervisor understands of a lifecycle, and going on with no more than that.

use super::event::Settings;
use super::generation::{Asked, Child, Escalation, GRACE, State};
use super::time::Time;
use super::{Attempt, Core, Holder, Phase, Respawn};
use protocol::message::Generation;
use serde::{Deserialize, Serialize};

/// One generation, as any version of the supervisor understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Which.
    pub generation: Generation,
    /// Its process; `None` for a dead one, and for one that was ordered and not started.
    pub pid: Option<u32>,
    /// What it is for.
    pub part: Part,
}

/// What a generation is for, as any version of the supervisor understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// It is not active yet.
    Starting,
    /// It gets the new handshakes.
    Active,
    /// It can become active again at once.
    Standby,
    /// It is being ended.
    Ending,
    /// It has no process; what waits in its sockets is for its successor.
    Dead,
    /// It lets its sessions go; or a word of a later version, since to drain is what any generation can do.
    #[serde(other)]
    Draining,
}

impl Core {
    /// A lifecycle with these generations, of which no more is known. The active one stays active (without one, the
    /// youngest standby becomes it), the others drain, and those that were not ready are ended. To be followed by
    /// [`super::Event::Resume`].
    #[must_use]
    pub fn degraded(
        settings: Settings,
        seed: u64,
        now: Time,
        next: u32,
        gro: bool,
        survivors: &[Survivor],
        gone: &[Generation],
    ) -> Self {
        let youngest = |part| {
            let of = survivors.iter().filter(|survivor| survivor.part == part);
            of.map(|survivor| survivor.generation).max()
        };
        let active = youngest(Part::Active).or_else(|| youngest(Part::Standby));
        let mut core = Self { gro, ..Self::new(settings, seed) };
        for survivor in survivors {
            let state = match survivor.part {
                Part::Dead => continue,
                _ if Some(survivor.generation) == active => State::Active,
                Part::Active | Part::Standby | Part::Draining => {
                    let kill_at = now.after(core.settings.drain_timeout).after(GRACE);
                    State::Draining { kill_at, asked: Asked::Message }
                }
                Part::Starting | Part::Ending => {
                    let escalation = Escalation::Terminated { kill_at: now.after(GRACE) };
                    // One that was starting may have been ready and steered to.
                    State::Ending { served: true, escalation }
                }
            };
            let child = Child { state, pid: survivor.pid, ..Child::new(now, core.settings.ready_timeout) };
            core.children.insert(survivor.generation, child);
        }
        let respawn = Respawn { failed: 0, step: Attempt::Waiting { at: now }, waiters: Vec::new() };
        core.phase = match (active, youngest(Part::Dead)) {
            (Some(active), _) => Phase::Serving { active, upgrade: None },
            (None, Some(generation)) => Phase::Down { holder: Holder::Dead { generation, flush_at: now }, respawn },
            (None, None) if core.children.is_empty() => Phase::Idle,
            (None, None) => Phase::Down { holder: Holder::Nobody, respawn },
        };
        let dead: Vec<_> = gone.iter().filter(|gone| !core.children.contains_key(gone)).copied().collect();
        core.mourn_unknown(now, &dead);
        let numbers = survivors.iter().map(|survivor| survivor.generation.0).chain(gone.iter().map(|gone| gone.0));
        let highest = numbers.max().unwrap_or(0);
        core.next = next.max(highest.saturating_add(1));
        core
    }

    /// Every live generation, and a dead one whose sockets are held, as any version understands it.
    #[must_use]
    pub fn survivors(&self) -> Vec<Survivor> {
        let mut survivors: Vec<Survivor> = self
            .children
            .iter()
            .map(|(&generation, child)| {
                let part = match child.state {
                    State::Starting { .. } | State::Ready => Part::Starting,
                    State::Active => Part::Active,
                    State::Standby => Part::Standby,
                    State::Draining { .. } => Part::Draining,
                    State::Ending { .. } => Part::Ending,
                };
                Survivor { generation, pid: child.pid, part }
            })
            .collect();
        survivors.extend(self.held().map(|generation| Survivor { generation, pid: None, part: Part::Dead }));
        survivors
    }
}
