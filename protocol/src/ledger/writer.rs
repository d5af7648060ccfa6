//! Writing the ledger, on the way of each packet.

use super::layout::{LedgerError, Shape};
use super::slot::{Entry, Store, WORDS, clear};
use crate::cid::{CID_LEN, MemberId};
use crate::sys::Map;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Packets that come within this many seconds of the end of their connection are the last ones of it. Later ones are of
/// another connection from the same address, which was taken for the one that ended.
const LATE: u32 = 3;
/// So many slots get their memory at a time: 64 KiB.
const BATCH: u32 = 1_024;

/// The ledger of this process's own generation.
#[derive(Debug)]
pub struct Ledger {
    map: Map,
    shape: Shape,
    max_age: Duration,
    /// The sections that have a writer.
    taken: Mutex<BTreeSet<u32>>,
}

/// The one writer of one member's section.
#[derive(Debug)]
pub struct Writer {
    ledger: Arc<Ledger>,
    section: u32,
    begun: Instant,
    /// What is in each slot that was ever used.
    slots: Vec<Option<Known>>,
    free: Vec<u32>,
    /// The slots that have memory.
    backed: u32,
    /// The counters in IDs can't be chosen by a client, so a fast hash will do.
    by_counter: FxHashMap<u64, Place>,
    homes: HashMap<SocketAddr, Home>,
    /// Those that have ended, with the moment, in its order.
    late: VecDeque<(u32, u64)>,
    unrecorded: u64,
    /// When the slots were last looked through for old ones, and how far.
    swept: u32,
    sweep_at: usize,
}

/// A client's address, which several connections can share. Nobody says which ID is of which of them.
#[derive(Debug, Default)]
struct Home {
    /// Connections that began there and have not ended.
    open: u32,
    /// The slots of the IDs that first came from there.
    slots: Vec<u32>,
}

/// Where what is known of an ID is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In this slot.
    Slot(u32),
    /// Nowhere: its connection has ended in this second.
    Ended(u32),
}

/// One ID, as this process knows it.
#[derive(Clone, Copy, Debug)]
struct Known {
    counter: u64,
    client: SocketAddr,
    local: Option<IpAddr>,
    /// Where it first came from: the address by which the application knows the connection.
    home: SocketAddr,
    /// When it last came, in seconds since the writer was made.
    seen: u32,
}

impl Ledger {
    /// Takes the file from beside `adopt`. Entries that nothing has come for in `max_age` are removed.
    ///
    /// # Errors
    ///
    /// It is no ledger, or can't be mapped.
    pub fn open(file: OwnedFd, max_age: Duration) -> Result<Self, LedgerError> {
        let file = File::from(file);
        let shape = Shape::read(&file)?;
        let len = usize::try_from(shape.len()).map_err(|_| LedgerError::Header)?;
        Ok(Self { map: Map::new(file, len)?, shape, max_age, taken: Mutex::default() })
    }

    /// The writer of a member's section. `None`: it has none, or one that was taken already.
    #[must_use]
    pub fn writer(self: &Arc<Self>, member: MemberId) -> Option<Writer> {
        let section = u32::from(member.get());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if section >= self.shape.sections || !taken.insert(section) {
            return None;
        }
        Some(Writer {
            ledger: Arc::clone(self),
            section,
            begun: Instant::now(),
            slots: Vec::new(),
            free: Vec::new(),
            backed: 0,
            by_counter: FxHashMap::default(),
            homes: HashMap::new(),
            late: VecDeque::new(),
            unrecorded: 0,
            swept: 0,
            sweep_at: 0,
        })
    }

    fn words(&self, at: u64, count: usize) -> &[AtomicU64] {
        // Shape has checked that the file, and so the map, is as long as all its slots.
        usize::try_from(at / 8).ok().and_then(|first| self.map.words().get(first..first + count)).unwrap_or_default()
    }
}

impl Writer {
    /// A packet has come from `client` to `local` with an ID that this member has minted as the `counter`-th.
    pub fn saw(&mut self, now: Instant, counter: u64, id: [u8; CID_LEN], client: SocketAddr, local: Option<IpAddr>) {
        let seen = self.tick(now);
        let slot = match self.by_counter.get(&counter) {
            Some(Place::Ended(ended)) if seen.saturating_sub(*ended) <= LATE => return,
            Some(&Place::Slot(slot)) => {
                let Some(Some(known)) = self.slots.get_mut(slot as usize) else { return };
                known.seen = seen;
                if known.client == client && known.local == local {
                    return;
                }
                (known.client, known.local) = (client, local);
                slot
            }
            Some(Place::Ended(_)) | None => {
                let Some(slot) = self.take_slot() else {
                    self.unrecorded += 1;
                    return;
                };
                self.slots[slot as usize] = Some(Known { counter, client, local, home: client, seen });
                self.by_counter.insert(counter, Place::Slot(slot));
                self.homes.entry(client).or_default().slots.push(slot);
                slot
            }
        };
        Entry { id, client, local }.write(&mut self.shared(slot));
    }

    /// A connection whose first packet came from there has been accepted. To be followed by one [`Self::ended`].
    pub fn began(&mut self, home: SocketAddr) {
        let home = self.homes.entry(home).or_default();
        home.open = home.open.saturating_add(1);
    }

    /// A connection whose first packet came from there has ended. With the last one, their entries go: one that is told
    /// of a death after its own end drops it, but one that lives and is taken out would not be told.
    pub fn ended(&mut self, now: Instant, home: SocketAddr) {
        if let Some(home) = self.homes.get_mut(&home) {
            home.open = home.open.saturating_sub(1);
            if home.open > 0 {
                return;
            }
        }
        let tick = self.tick(now);
        for slot in self.homes.remove(&home).unwrap_or_default().slots {
            if let Some(counter) = self.release(slot) {
                self.by_counter.insert(counter, Place::Ended(tick));
                self.late.push_back((tick, counter));
            }
        }
    }

    /// Removes old entries, a part of all at a time. To be called now and then, as often as one likes.
    pub fn expire(&mut self, now: Instant) {
        let tick = self.tick(now);
        if tick == self.swept {
            return;
        }
        self.swept = tick;
        while let Some((_, counter)) = self.late.pop_front_if(|(ended, _)| tick.saturating_sub(*ended) > LATE) {
            if let Some(Place::Ended(_)) = self.by_counter.get(&counter) {
                self.by_counter.remove(&counter);
            }
        }
        let max_age = u32::try_from(self.ledger.max_age.as_secs()).unwrap_or(u32::MAX);
        for _ in 0..self.slots.len().div_ceil(4) {
            self.sweep_at = if self.sweep_at + 1 < self.slots.len() { self.sweep_at + 1 } else { 0 };
            let Some(Some(known)) = self.slots.get(self.sweep_at).copied() else { continue };
            if tick.saturating_sub(known.seen) > max_age
                && let Ok(slot) = u32::try_from(self.sweep_at)
            {
                if let Some(home) = self.homes.get_mut(&known.home) {
                    home.slots.retain(|other| *other != slot);
                    if home.slots.is_empty() && home.open == 0 {
                        self.homes.remove(&known.home);
                    }
                }
                self.release(slot);
            }
        }
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many packets came whose client could not be recorded, because the section was full or there was no memory.
    #[must_use]
    pub const fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    fn tick(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.begun).as_secs()).unwrap_or(u32::MAX)
    }

    fn take_slot(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = u32::try_from(self.slots.len()).ok().filter(|slot| *slot < self.ledger.shape.slots)?;
        let shape = self.ledger.shape;
        if slot >= self.backed {
            let end = self.backed.saturating_add(BATCH).min(shape.slots);
            // From the section's header on, the first time.
            let from =
                if self.backed == 0 { shape.section(self.section) } else { shape.slot(self.section, self.backed) };
            self.ledger.map.allocate(from, shape.slot(self.section, end) - from).ok()?;
            self.backed = end;
        }
        self.slots.push(None);
        // Before the slot is written: a reader looks no further than this.
        let used = self.ledger.words(shape.section(self.section), 1);
        used.iter().for_each(|used| used.store((u64::from(slot) + 1).to_le(), Ordering::Release));
        Some(slot)
    }

    /// Empties a slot. Returns the counter that was in it.
    fn release(&mut self, slot: u32) -> Option<u64> {
        let known = self.slots.get_mut(slot as usize).and_then(Option::take)?;
        self.by_counter.remove(&known.counter);
        clear(&mut self.shared(slot));
        self.free.push(slot);
        Some(known.counter)
    }

    fn shared(&self, slot: u32) -> Shared<'_> {
        Shared(self.ledger.words(self.ledger.shape.slot(self.section, slot), WORDS))
    }
}

/// A slot in the map.
struct Shared<'a>(&'a [AtomicU64]);

impl Store for Shared<'_> {
    fn store(&mut self, word: usize, value: u64, is_check: bool) {
        let Some(place) = self.0.get(word) else { return };
        if is_check {
            // What came before, before it.
            fence(Ordering::Release);
        }
        place.store(value.to_le(), Ordering::Relaxed);
        if is_check {
            // It before what follows.
            fence(Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
