//! The names under which what was seen is comparable.

use super::{Process, Told, Watch};
use protocol::message::Generation;
use std::collections::{BTreeMap, BTreeSet};
use supervisor::core::{Canonical, Steering, Time};

impl Watch {
    /// The same with other names and as if the present were the epoch (see `Core::canonical`).
    pub(crate) fn renamed(&self, now: Time, names: &Canonical) -> Self {
        let limit = |limit: &Time| if self.timed { Time::default().after(now.until(*limit)) } else { Time::default() };
        let moment = |moment: &Time| Time::default().after(now.until(*moment));
        let name = |generation: &Generation| names.generations.get(generation).copied().unwrap_or(Generation(0));
        let steering = |steering: &Steering| Steering {
            live: steering.live.iter().map(name).collect(),
            active: name(&steering.active),
            canary: None,
        };
        let process = |process: &Process| {
            let mut process = process.clone();
            process.takes_over = process.takes_over.as_ref().map(name);
            // The lifecycle has forgotten the dead too.
            process.heir_of.clear();
            process.role = process.role.and_then(|role| names.roles.get(&role).copied());
            process.stuck_at = process.stuck_at.as_ref().map(moment);
            if let Told::Drain { ends } = process.told {
                process.told = Told::Drain { ends: moment(&ends) };
            }
            process
        };
        Self {
            processes: self.processes.iter().map(|(generation, p)| (name(generation), process(p))).collect(),
            held: self.held.iter().map(name).collect(),
            gone: BTreeMap::new(),
            lost: BTreeSet::new(),
            last: names.generations.values().max().copied(),
            waiting: self.waiting.iter().map(|(request, latest)| (names.requests[request], limit(latest))).collect(),
            end_by: self.end_by.as_ref().map(limit),
            steering: self.steering.as_ref().map(steering),
            ordered: self.ordered.as_ref().map(steering),
            steers: self.steers.iter().map(steering).collect(),
            checking: self.checking.as_ref().map(name),
            probing: self.probing.as_ref().map(name),
            speaker: self.speaker.filter(|speaker| self.still_speaks(*speaker)).as_ref().map(name),
            last_role: u64::try_from(names.roles.len()).unwrap(),
            ..self.clone()
        }
    }
}
