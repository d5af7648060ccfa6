//! Which generation speaks for the node, and what it is told about the others.
//!
//! Operators see one node. So one generation at a time publishes its statistics: the active one once its upgrade is
//! committed, its predecessor until then. It gets the counters of the others as they last said them, and those of the
//! generations that have gone, so that no total of the node ever goes down (`docs/design/overlap.md`).

use super::event::Action;
use super::generation::Child;
use super::{Core, Holder, Phase};
use protocol::message::{Generation, GenerationStats, Stats, ToChild};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// So many different names may the traffic counters of those that have gone have. They come from processes that are not
/// trusted to stay with the same ones.
const MAX_NAMES: usize = 1_024;

/// Who is told the counters of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Audience {
    /// It publishes the statistics of the node.
    speaker: Option<Generation>,
    /// It is active, and on probation: operators ask it already (its predecessor has stopped accepting), but it may be
    /// rolled back.
    asked: Option<Generation>,
}

impl Audience {
    /// Both.
    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Generation> {
        self.speaker.iter_mut().chain(&mut self.asked)
    }
}

impl Core {
    /// A generation has said its counters.
    pub(super) fn counters_changed(&self, generation: Generation, out: &mut Vec<Action>) {
        let Audience { speaker, asked } = self.audience;
        self.tell_counters(speaker.filter(|speaker| *speaker != generation), true, out);
        self.tell_counters(asked.filter(|asked| *asked != generation), false, out);
    }

    /// A generation has gone: what it counted stays.
    pub(super) fn absorb(&mut self, generation: Generation, child: &Child, out: &mut Vec<Action>) {
        add(&mut self.gone, &child.stats);
        let Audience { speaker, asked } = &mut self.audience;
        speaker.take_if(|speaker| *speaker == generation);
        asked.take_if(|asked| *asked == generation);
        if !child.stats.is_nothing() || child.may_answer() {
            self.counters_changed(generation, out);
        }
    }

    /// Tells those that the states call for and that have not been told. Whoever is not any more is told by other messages.
    pub(super) fn settle_audience(&mut self, out: &mut Vec<Action>) {
        let (before, wanted) = (self.audience, self.audience_wanted());
        self.audience = wanted;
        self.tell_counters(wanted.speaker.filter(|_| wanted.speaker != before.speaker), true, out);
        self.tell_counters(wanted.asked.filter(|_| wanted.asked != before.asked), false, out);
    }

    fn tell_counters(&self, to: Option<Generation>, speaks: bool, out: &mut Vec<Action>) {
        let Some(to) = to else { return };
        let others = self.children.iter().filter(|(generation, _)| **generation != to);
        // What a child says before it acknowledges has been read before the acknowledgement.
        let settled = others.clone().all(|(_, child)| !child.may_answer());
        let generations =
            others.map(|(&generation, child)| GenerationStats { generation, stats: child.stats.clone() }).collect();
        self.tell(to, ToChild::Counters { speaks, settled, generations, gone: self.gone.clone() }, out);
    }

    /// The active one speaks, but its predecessor while that can still take over again. Nobody in a stop.
    fn audience_wanted(&self) -> Audience {
        match &self.phase {
            Phase::Serving { active, .. } => match self.standby() {
                Some(standby) => Audience { speaker: Some(standby), asked: Some(*active) },
                None => Audience { speaker: Some(*active), asked: None },
            },
            Phase::Down { holder: Holder::StandIn { generation }, .. } => {
                Audience { speaker: Some(*generation), asked: None }
            }
            Phase::Down { holder: Holder::Dead { .. } | Holder::Nobody, .. }
            | Phase::Idle
            | Phase::First { .. }
            | Phase::Stopping { .. }
            | Phase::Leaving { .. }
            | Phase::Ended => Audience::default(),
        }
    }
}

/// Adds the counters of one that has gone. What it had open is closed.
fn add(total: &mut Stats, last: &Stats) {
    let Stats { sessions: _, setup: _, handshakes, told, left, forced, foreign, traffic } = last;
    for (total, last) in [
        (&mut total.handshakes, handshakes),
        (&mut total.told, told),
        (&mut total.left, left),
        (&mut total.forced, forced),
        (&mut total.foreign, foreign),
    ] {
        *total = total.saturating_add(*last);
    }
    let mut room = MAX_NAMES.saturating_sub(names(&total.traffic));
    add_each(&mut total.traffic, traffic, &mut room);
}

/// Adds number by number, also within objects. What is no whole number is no counter.
fn add_each(total: &mut Map<String, Value>, last: &Map<String, Value>, room: &mut usize) {
    for (name, last) in last {
        if !total.contains_key(name) {
            let Some(left) = room.checked_sub(1) else { continue };
            let first = match last {
                Value::Number(number) if number.is_u64() => Value::from(0_u64),
                Value::Object(_) => Value::Object(Map::new()),
                Value::Number(_) | Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => continue,
            };
            *room = left;
            total.insert(name.clone(), first);
        }
        match (total.get_mut(name), last) {
            (Some(Value::Object(total)), Value::Object(last)) => add_each(total, last, room),
            (Some(Value::Number(total)), Value::Number(last)) => {
                if let (Some(before), Some(last)) = (total.as_u64(), last.as_u64()) {
                    *total = before.saturating_add(last).into();
                }
            }
            // It meant something else to another generation.
            (Some(_) | None, _) => {}
        }
    }
}

/// How many names there are, at all levels.
fn names(traffic: &Map<String, Value>) -> usize {
    let below = |value: &Value| value.as_object().map_or(0, names);
    traffic.values().map(|value| 1 + below(value)).sum()
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAMES, add, names};
    use protocol::message::Stats;
    use serde_json::{Value, json};

    fn stats(sessions: u64, handshakes: u64, traffic: Value) -> Stats {
        let Value::Object(traffic) = traffic else { unreachable!("an object") };
        Stats { sessions, handshakes, traffic, ..Stats::default() }
    }

    /// A session that was open when its generation went is not open any more, but its handshake was one.
    #[test]
    fn counters_add_up_and_what_was_open_is_not_counted() {
        let mut total = Stats::default();
        add(
            &mut total,
            &stats(3, 10, json!({"bytes": 5, "by": {"tier": 1}, "rate": 1.5, "note": "text", "list": [1]})),
        );
        add(&mut total, &stats(1, 4, json!({"bytes": 7, "by": {"tier": 2, "other": 3}, "note": 8})));
        assert_eq!(total, stats(0, 14, json!({"bytes": 12, "by": {"tier": 3, "other": 3}, "note": 8})));
        add(&mut total, &stats(0, u64::MAX, json!({"bytes": u64::MAX, "by": 9, "note": {"x": 1}})));
        assert_eq!(total, stats(0, u64::MAX, json!({"bytes": u64::MAX, "by": {"tier": 3, "other": 3}, "note": 8})));
    }

    /// A child that invents names would fill the state of the supervisor, upgrade by upgrade.
    #[test]
    fn names_that_are_too_many_are_left_out() {
        let mut total = Stats::default();
        for round in 0..3 {
            let invented = (0..MAX_NAMES).map(|name| (format!("{round}-{name}"), Value::from(1)));
            add(&mut total, &stats(0, 1, Value::Object(invented.collect())));
            add(&mut total, &stats(0, 1, json!({"0-0": 1})));
        }
        assert_eq!(names(&total.traffic), MAX_NAMES);
        assert_eq!(total.traffic["0-0"], 4, "what is known goes on being counted");
        assert_eq!(total.handshakes, 6);
    }
}
