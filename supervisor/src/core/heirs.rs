//! The dead, and who answers for them: docs/design/ledger.md.

use super::event::{Action, ExitStatus};
use super::generation::{Asked, Child, State};
use super::time::Time;
use super::{Core, Phase};
use protocol::ledger::max_silence;
use protocol::message::Generation;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// No idle timeout that a child named counts for more than this.
const LONGEST: Duration = Duration::from_secs(3_600);
/// So many dead are remembered at most: a crash loop must fill neither memory nor the fd store.
const MOST: usize = 32;

/// A generation whose process has been reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Mourned {
    /// When its clients have given up.
    forget_at: Time,
    /// It was switched to before, as far as is known.
    served: bool,
}

impl Core {
    /// Remembers a generation whose process has ended, if it may have had sockets. One that has drained to its end has
    /// closed every connection itself: their late packets get no answer. Of one that may live, nobody speaks.
    pub(super) fn mourn(
        &mut self,
        now: Time,
        generation: Generation,
        child: &Child,
        status: ExitStatus,
        out: &mut Vec<Action>,
    ) {
        if !child.had_sockets() {
            return;
        }
        let has_orphans = match status {
            ExitStatus::Code(0) => child.drain_left(now).is_none(),
            ExitStatus::Code(_) | ExitStatus::Signal(_) | ExitStatus::Unknown => true,
            ExitStatus::Lost => false,
        };
        if !has_orphans {
            out.push(Action::Forget { generation });
            return;
        }
        // Of one that an earlier supervisor of another version started, no more is known than that it lives.
        let idle_timeout = child.about.as_ref().and_then(|about| about.idle_timeout);
        let mourned = Mourned { forget_at: now.after(retention(idle_timeout)), served: child.serves() };
        self.mourned.insert(generation, mourned);
        while self.mourned.len() > MOST
            && let Some(generation) = self.least_missed()
        {
            self.mourned.remove(&generation);
            out.push(Action::Forget { generation });
        }
    }

    /// The oldest of those that never served, whom hardly anybody knows: one that served and is followed by a crash loop
    /// has the clients. Else the oldest.
    fn least_missed(&self) -> Option<Generation> {
        let unserved = self.mourned.iter().find(|(_, mourned)| !mourned.served);
        unserved.or_else(|| self.mourned.first_key_value()).map(|(generation, _)| *generation)
    }

    /// Those of an earlier supervisor, of which no more is known.
    pub(super) fn mourn_unknown(&mut self, now: Time, gone: &[Generation]) {
        let gone = gone.iter().rev().take(MOST);
        let mourned = Mourned { forget_at: now.after(retention(None)), served: true };
        self.mourned = gone.map(|generation| (*generation, mourned)).collect();
    }

    /// Forgets those whose clients have given up by now.
    pub(super) fn forget_mourned(&mut self, now: Time, out: &mut Vec<Action>) {
        if self.phase == Phase::Ended {
            return;
        }
        let over = self.mourned.extract_if(.., |_, mourned| mourned.forget_at <= now);
        out.extend(over.map(|(generation, _)| Action::Forget { generation }));
    }

    /// The dead of another boot id: their numbers are about to be used again.
    pub(super) fn forget_all_mourned(&mut self, out: &mut Vec<Action>) {
        out.extend(std::mem::take(&mut self.mourned).into_keys().map(|generation| Action::Forget { generation }));
    }

    /// When the next one is forgotten.
    pub(super) fn forget_deadline(&self) -> Option<Time> {
        self.mourned.values().map(|mourned| mourned.forget_at).min()
    }

    /// Tells each heir what it does not know yet.
    pub(super) fn settle_heirs(&mut self, out: &mut Vec<Action>) {
        for generation in self.heirs() {
            let Some(child) = self.children.get_mut(&generation) else { continue };
            let dead: Vec<_> = self.mourned.keys().filter(|dead| !child.heir_of.contains(dead)).copied().collect();
            if !dead.is_empty() {
                child.heir_of.extend(&dead);
                out.push(Action::Heir { generation, dead });
            }
        }
    }

    /// The active one, and who is about to become it, since it gets the packets of the dead from the switch on, and a
    /// successor that has taken over the dead one's sockets before that. In a stop nobody gets these packets: then it is one of
    /// those that drain, which can still tell, the youngest, since it was told to drain last.
    fn heirs(&self) -> Vec<Generation> {
        let mut children = self.children.iter().filter(|(_, child)| child.can_be_told());
        match self.phase {
            Phase::Serving { .. } | Phase::Down { .. } => {
                let gets_packets = children.filter(|(_, child)| match child.state {
                    State::Active => true,
                    State::Starting { .. } | State::Ready => child.is_adopted(),
                    State::Standby | State::Draining { .. } | State::Ending { .. } => false,
                });
                gets_packets.map(|(generation, _)| *generation).collect()
            }
            Phase::Stopping { .. } => {
                let youngest = children.rfind(|(_, child)| match child.state {
                    State::Draining { asked: Asked::Message, .. } => true,
                    // It does not listen.
                    State::Draining { asked: Asked::Term, .. } => false,
                    State::Starting { .. } | State::Ready | State::Active | State::Standby | State::Ending { .. } => {
                        false
                    }
                });
                youngest.map(|(generation, _)| *generation).into_iter().collect()
            }
            Phase::Idle | Phase::First { .. } | Phase::Leaving { .. } | Phase::Ended => Vec::new(),
        }
    }

    /// The dead that are remembered.
    #[must_use]
    pub fn mourned(&self) -> Vec<Generation> {
        self.mourned.keys().copied().collect()
    }
}

/// How long clients of a generation may live on.
fn retention(idle_timeout: Option<Duration>) -> Duration {
    max_silence(idle_timeout.map(|timeout| timeout.min(LONGEST)))
}
