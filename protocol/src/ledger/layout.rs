//! Where in the file what is.

use crate::cid::MAX_MEMBERS;
use rustix::fs::{FileType, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// The length of a slot in bytes: a cache line on the processors of servers.
pub const SLOT_LEN: usize = 64;
/// The most slots that a section has: clients of one member that can be recorded at a time.
pub const MAX_SLOTS: u32 = 65_536;

/// The fewest slots of a section.
const MIN_SLOTS: u32 = 256;
/// The most slots of a file, if its sections have more than the fewest.
const ALL_SLOTS: u32 = 1 << 20;
/// The magic and the version of the layout.
const MAGIC: [u8; 8] = *b"moqledg\x01";
/// The length of the file's header, and of a section's.
const HEADER: u64 = SLOT_LEN as u64;

/// Why a file is no ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// It is no memfd, or its size can be changed: to map it would be to risk SIGBUS.
    #[error("use the ledger: it is not a memfd whose size is sealed")]
    Kind,
    /// Its header does not have the magic, the version or the numbers of a ledger of its length.
    #[error("use the ledger: its header is not that of a ledger of version 1 and this length")]
    Header,
    /// It can't be read or mapped.
    #[error("use the ledger: {0}")]
    Io(#[from] io::Error),
}

/// How many sections of how many slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// One per member, whose numbers begin at 0.
    pub(super) sections: u32,
    /// Of each section.
    pub(super) slots: u32,
}

/// Makes the ledger of a generation with so many members (numbered from 0): sparse, close-on-exec, its size sealed.
///
/// # Errors
///
/// As memfd_create(2) and ftruncate(2); `InvalidInput` for more than [`MAX_MEMBERS`].
pub fn create(members: usize) -> io::Result<OwnedFd> {
    let sections = u32::try_from(members).ok().filter(|_| members <= MAX_MEMBERS);
    let shape = Shape::of(sections.ok_or(io::ErrorKind::InvalidInput)?);
    let file = File::from(memfd_create("moq-supervise-ledger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    ftruncate(&file, shape.len())?;
    file.write_all_at(&shape.header(), 0)?;
    fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
    Ok(file.into())
}

/// What keeps the size as it is.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

impl Shape {
    pub(super) fn of(sections: u32) -> Self {
        let slots = ALL_SLOTS.checked_div(sections).unwrap_or(MAX_SLOTS);
        Self { sections, slots: slots.clamp(MIN_SLOTS, MAX_SLOTS) }
    }

    /// That of a file from another process, which may have written anything into it.
    pub(super) fn read(file: &File) -> Result<Self, LedgerError> {
        let stat = fstat(file).map_err(io::Error::from)?;
        // Only files in memory have seals (fcntl(2)), so this can't block on a file system that hangs.
        let sealed = fcntl_get_seals(file.as_fd()).is_ok_and(|seals| seals.contains(SEALS));
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !sealed {
            return Err(LedgerError::Kind);
        }
        let mut header = [0; 16];
        if u64::try_from(stat.st_size).is_ok_and(|len| len < HEADER) {
            return Err(LedgerError::Header);
        }
        file.read_exact_at(&mut header, 0)?;
        let (magic, numbers) = header.split_at(MAGIC.len());
        let (sections, slots) = numbers.split_at(4);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let shape = Self { sections: number(sections), slots: number(slots) };
        let possible = magic == MAGIC
            && usize::try_from(shape.sections).is_ok_and(|sections| sections <= MAX_MEMBERS)
            && shape.slots <= MAX_SLOTS
            && u64::try_from(stat.st_size) == Ok(shape.len());
        if possible { Ok(shape) } else { Err(LedgerError::Header) }
    }

    fn header(self) -> [u8; 16] {
        let mut header = [0; 16];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&self.sections.to_le_bytes());
        header[12..].copy_from_slice(&self.slots.to_le_bytes());
        header
    }

    /// The length of the file in bytes; at most 4 096 × (64 + 65 536 × 64) + 64, so it does not overflow.
    pub(super) fn len(self) -> u64 {
        HEADER + u64::from(self.sections) * self.section_len()
    }

    fn section_len(self) -> u64 {
        HEADER + u64::from(self.slots) * HEADER
    }

    /// Where the section of a member begins, in bytes.
    pub(super) fn section(self, member: u32) -> u64 {
        HEADER + u64::from(member) * self.section_len()
    }

    /// Where a slot begins, in bytes.
    pub(super) fn slot(self, member: u32, slot: u32) -> u64 {
        self.section(member) + HEADER + u64::from(slot) * HEADER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_read_back() {
        for members in [0, 1, 4, 16, 17, 253, 4_096] {
            let file = File::from(create(members).unwrap());
            let shape = Shape::read(&file).unwrap();
            assert_eq!(shape, Shape::of(u32::try_from(members).unwrap()));
            assert_eq!(file.metadata().unwrap().len(), shape.len(), "{members}");
            let slots = u64::from(shape.slots) * u64::from(shape.sections);
            assert!(slots <= u64::from(ALL_SLOTS) && (256..=MAX_SLOTS).contains(&shape.slots), "{members}");
        }
        assert!(create(4_097).is_err());
    }

    #[test]
    fn what_is_no_ledger_is_refused() {
        let unsealed = File::from(memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap());
        assert!(matches!(Shape::read(&unsealed), Err(LedgerError::Kind)));
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(Shape::read(&File::from(OwnedFd::from(socket))), Err(LedgerError::Kind)));
        let sealed = File::from(crate::channel::sealed_memfd("x", b"moqledg").unwrap());
        assert!(matches!(Shape::read(&sealed), Err(LedgerError::Header)));
    }

    /// The header lies in memory that the child can write.
    #[test]
    fn a_header_that_does_not_fit_the_length_is_refused() {
        for (sections, slots) in [(2, 65_536), (1, 65_535), (u32::MAX, u32::MAX), (4_097, 256), (0, 0)] {
            let file = File::from(create(1).unwrap());
            file.write_all_at(&Shape { sections, slots }.header(), 0).unwrap();
            assert!(matches!(Shape::read(&file), Err(LedgerError::Header)), "{sections} {slots}");
        }
        let file = File::from(create(1).unwrap());
        file.write_all_at(b"moqledg\x02", 0).unwrap();
        assert!(matches!(Shape::read(&file), Err(LedgerError::Header)));
    }
}
