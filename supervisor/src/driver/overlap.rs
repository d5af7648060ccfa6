//! Links between generations, and what the one that speaks for the node is told about the others.

use super::Driver;
use protocol::channel::MAX_MESSAGE;
use protocol::message::{Generation, GenerationStats, Stats, ToChild};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

/// The two ends of one link, the older generation's first.
#[derive(Debug)]
pub(super) struct Pair {
    older: Generation,
    ends: (UnixStream, UnixStream),
}

/// A connected pair for each of these. Without one the generations serve on, each with its own publishers alone.
pub(super) fn pairs(older: &[Generation]) -> Vec<Pair> {
    let pair = |&older: &Generation| match UnixStream::pair() {
        Ok(ends) => Some(Pair { older, ends }),
        Err(error) => {
            tracing::warn!("no link with generation {older}: {error}");
            None
        }
    };
    older.iter().filter_map(pair).collect()
}

/// As `adopt` says it.
pub(super) fn count(pairs: &[Pair]) -> u16 {
    u16::try_from(pairs.len()).unwrap_or(u16::MAX)
}

/// The message, without the traffic counters if they would make it longer than a record may be: what each child may say
/// fits, but not always what all of them have said.
pub(super) fn fitting(message: ToChild) -> ToChild {
    let ToChild::Counters { speaks, settled, generations, gone } = &message else { return message };
    if serde_json::to_vec(&message).is_ok_and(|text| text.len() <= MAX_MESSAGE) {
        return message;
    }
    tracing::warn!("the traffic counters of all generations don't fit a message: the node's totals go without them");
    let bare = |stats: &Stats| Stats { traffic: serde_json::Map::new(), ..stats.clone() };
    let each = |one: &GenerationStats| GenerationStats { generation: one.generation, stats: bare(&one.stats) };
    let generations = generations.iter().map(each).collect();
    ToChild::Counters { speaks: *speaks, settled: *settled, generations, gone: bare(gone) }
}

impl Driver {
    /// Gives both generations of each pair their end.
    pub(super) fn link(&mut self, generation: Generation, pairs: Vec<Pair>) {
        for Pair { older, ends: (theirs, own) } in pairs {
            self.give(older, generation, &theirs);
            self.give(generation, older, &own);
        }
    }

    fn give(&mut self, to: Generation, peer: Generation, end: &UnixStream) {
        if let Err(error) = self.children.send(to, ToChild::Link { generation: peer }, &[end.as_fd()]) {
            self.lose(to, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fitting;
    use protocol::channel::MAX_MESSAGE;
    use protocol::message::{Generation, GenerationStats, Stats, ToChild};

    fn counters(bytes: usize) -> ToChild {
        let traffic = [("text".to_owned(), "x".repeat(bytes).into())].into_iter().collect();
        let stats = Stats { sessions: 7, traffic, ..Stats::default() };
        let one = |generation| GenerationStats { generation: Generation(generation), stats: stats.clone() };
        ToChild::Counters { speaks: true, settled: true, generations: vec![one(1), one(2)], gone: Stats::default() }
    }

    /// A record that is too long can't be sent, and whoever can't be sent something counts as lost.
    #[test]
    fn counters_that_are_too_long_go_without_traffic() {
        let short = counters(100);
        assert_eq!(fitting(short.clone()), short);
        let long = counters(MAX_MESSAGE / 2);
        let fitted = fitting(long);
        assert!(serde_json::to_vec(&fitted).expect("JSON").len() < 1_000);
        let ToChild::Counters { generations, .. } = fitted else { unreachable!("counters stay counters") };
        assert!(generations.iter().all(|one| one.stats.sessions == 7 && one.stats.traffic.is_empty()));
    }
}
