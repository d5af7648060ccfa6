//! Reading what a dead generation left.

use super::SLOT_LEN;
use super::layout::{LedgerError, Shape};
use super::slot::{Entry, WORDS};
use crate::cid::MemberId;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// So many slots are read at a time.
const CHUNK: u32 = 512;

/// A ledger whose writer has gone. Nothing is believed of it but what the checks say; a writer that is still there can
/// only make entries come or not.
#[derive(Debug)]
pub struct Reader {
    file: File,
    shape: Shape,
}

impl Reader {
    /// Takes the file from beside an `heir` message.
    ///
    /// # Errors
    ///
    /// It is no ledger.
    pub fn open(file: OwnedFd) -> Result<Self, LedgerError> {
        let file = File::from(file);
        let shape = Shape::read(&file)?;
        Ok(Self { file, shape })
    }

    /// The entries with the member in whose section each is, in pieces, so that a long ledger takes little memory. After
    /// an error there is no more.
    pub fn pieces(&self) -> impl Iterator<Item = io::Result<Vec<(MemberId, Entry)>>> + '_ {
        let sections = 0..self.shape.sections;
        let members = sections.filter_map(|section| Some((section, MemberId::new(u16::try_from(section).ok()?)?)));
        members.flat_map(|(section, member)| self.section(section, member))
    }

    fn section(&self, section: u32, member: MemberId) -> impl Iterator<Item = io::Result<Vec<(MemberId, Entry)>>> + '_ {
        let mut used = [0; 8];
        let (used, error) = match self.file.read_exact_at(&mut used, self.shape.section(section)) {
            // Whatever it says, no more than there are.
            Ok(()) => (u64::from_le_bytes(used).min(u64::from(self.shape.slots)), None),
            Err(error) => (0, Some(Err(error))),
        };
        let used = u32::try_from(used).unwrap_or(self.shape.slots);
        let chunks = (0..used).step_by(CHUNK as usize);
        let chunks = chunks.map(move |first| self.chunk(section, member, first, used.min(first + CHUNK)));
        error.into_iter().chain(chunks)
    }

    fn chunk(&self, section: u32, member: MemberId, first: u32, end: u32) -> io::Result<Vec<(MemberId, Entry)>> {
        let mut bytes = vec![0; SLOT_LEN * (end - first) as usize];
        self.file.read_exact_at(&mut bytes, self.shape.slot(section, first))?;
        let (slots, _) = bytes.as_chunks::<SLOT_LEN>();
        Ok(slots.iter().filter_map(|slot| Some((member, Entry::read(words(slot))?))).collect())
    }
}

fn words(slot: &[u8; SLOT_LEN]) -> [u64; WORDS] {
    let (words, _) = slot.as_chunks::<8>();
    std::array::from_fn(|number| u64::from_le_bytes(words[number]))
}

#[cfg(test)]
mod tests;
