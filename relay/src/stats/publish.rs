//! Writing counters as broadcasts.

use super::frames::Frames;
use moq_json::Compression;
use moq_json::snapshot::{Config, Encoder};
use moq_net::stats::{Role, Tier};
use moq_net::{broadcast, group, origin, track};
use moq_stats::{COMPRESSED_SUFFIX, sessions_track, traffic_track};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// A broadcast under way. Dropping it withdraws it.
pub(super) struct Published {
    broadcast: broadcast::Producer,
    tracks: BTreeMap<String, Pair>,
}

/// A track in both forms.
struct Pair {
    plain: Writer,
    compressed: Writer,
}

struct Writer {
    track: track::Producer,
    encoder: Encoder<serde_json::Value>,
    group: Option<group::Producer>,
}

impl Published {
    /// Announces it, with the tracks of the default tier; those of others come with their first row.
    pub(super) fn new(origin: &origin::Producer, path: &str) -> Result<Self, moq_net::Error> {
        let broadcast = origin.publish(path, origin::Route::default())?;
        let mut published = Self { broadcast, tracks: BTreeMap::new() };
        let tier = Tier::default();
        let names = [Role::Publisher, Role::Subscriber].map(|role| traffic_track(&tier, role, false));
        for name in names.into_iter().chain([sessions_track(&tier, false)]) {
            published.pair(&name)?;
        }
        Ok(published)
    }

    /// Writes what has changed since the last time.
    pub(super) fn write(&mut self, frames: &Frames) -> Result<(), moq_json::Error> {
        for (name, frame) in &frames.traffic {
            self.pair(name)?.write(frame)?;
        }
        for (name, frame) in &frames.sessions {
            self.pair(name)?.write(frame)?;
        }
        let written = |name: &String| frames.traffic.contains_key(name) || frames.sessions.contains_key(name);
        for pair in self.tracks.iter_mut().filter(|(name, _)| !written(name)).map(|(_, pair)| pair) {
            pair.write(&serde_json::Map::new())?;
        }
        Ok(())
    }

    fn pair(&mut self, name: &str) -> Result<&mut Pair, moq_net::Error> {
        if !self.tracks.contains_key(name) {
            let deflate = |compression| {
                let mut config = Config::default();
                config.compression = compression;
                config
            };
            let compressed = format!("{name}{COMPRESSED_SUFFIX}");
            let pair = Pair {
                plain: Writer::new(self.broadcast.create_track(name, None)?, Config::default().with_delta_ratio(0)),
                compressed: Writer::new(self.broadcast.create_track(compressed, None)?, deflate(Compression::Deflate)),
            };
            self.tracks.insert(name.to_owned(), pair);
        }
        self.tracks.get_mut(name).ok_or(moq_net::Error::NotFound)
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        for pair in self.tracks.values_mut() {
            pair.plain.finish();
            pair.compressed.finish();
        }
    }
}

impl Pair {
    fn write(&mut self, frame: &impl Serialize) -> Result<(), moq_json::Error> {
        let value = serde_json::to_value(frame).unwrap_or_default();
        self.plain.write(&value)?;
        self.compressed.write(&value)
    }
}

impl Writer {
    fn new(track: track::Producer, config: Config) -> Self {
        Self { track, encoder: Encoder::new(config), group: None }
    }

    /// A full value begins a group, a difference is appended to it, and what is unchanged is not written.
    fn write(&mut self, value: &serde_json::Value) -> Result<(), moq_json::Error> {
        let Some(frame) = self.encoder.update(value)? else { return Ok(()) };
        let mut group = match self.group.take() {
            Some(group) if !frame.keyframe => group,
            before => {
                if let Some(before) = before {
                    before.finish()?;
                }
                self.track.create_group(group::Info { sequence: sequence() })?
            }
        };
        group.write_frame(moq_net::Timestamp::now(), frame.payload.clone())?;
        frame.commit();
        self.group = Some(group);
        Ok(())
    }

    /// An end, and not an accident. Errors mean that it has ended before.
    fn finish(&mut self) {
        if let Some(group) = self.group.take() {
            drop(group.finish());
        }
        drop(self.track.finish());
    }
}

/// The next generation goes on with this broadcast, and its groups must be later ones to those who watch: so they are
/// numbered by the clock, in microseconds. There are far fewer than one in that time.
fn sequence() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
