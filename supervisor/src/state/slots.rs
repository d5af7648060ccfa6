//! A file of two slots that are written in turns, so that a writer that is killed in the middle tears only the older one.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

/// The longest content in bytes. Sixteen generations with 4 096 sockets take well below a tenth of it; what is not written
/// takes no memory.
pub const MAX_CONTENT: usize = (16 << 20) - HEADER;

/// A memfd with two slots. Each is a header of 64 bytes, numbers little-endian, and the content behind it:
///
/// | offset | bytes | |
/// |---|---|---|
/// | 0 | 8 | the magic `moqstat1`; another layout would have another |
/// | 8 | 4 | format: the writer's name for the content's exact part |
/// | 12 | 4 | zero |
/// | 16 | 8 | sequence: one more with each write |
/// | 24 | 8 | length of the content |
/// | 32 | 32 | SHA-256 of the 32 bytes before it and the content |
#[derive(Debug)]
pub struct Slots {
    file: File,
    /// Of the content that was written last.
    sequence: u64,
    /// The slot that may be overwritten.
    next: u64,
}

/// What was written last and is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The writer's name for its format.
    pub format: u32,
    /// The how-manieth it is.
    pub sequence: u64,
    /// It.
    pub bytes: Vec<u8>,
}

/// Neither slot can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// Not a file that was made by [`Slots::create`].
    #[error("read the state: it is not a memfd of two slots")]
    Kind,
    /// The kernel says no.
    #[error("read the state")]
    Io(#[source] io::Error),
    /// Both are bad.
    #[error("read the state: the first slot {}, the second {}", .slots[0], .slots[1])]
    Slots {
        /// Why each is not read.
        slots: [BadSlot; 2],
    },
}

/// Why one slot is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSlot {
    /// Never written.
    #[error("is blank")]
    Blank,
    /// Another magic.
    #[error("has another layout")]
    Magic,
    /// Longer than any content.
    #[error("claims {0} bytes")]
    Length(u64),
    /// Torn, or damaged.
    #[error("has a wrong checksum")]
    Checksum,
}

/// The content was not written; what was written before is still there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// More than [`MAX_CONTENT`].
    #[error("write the state: {bytes} bytes are more than the {MAX_CONTENT} that fit")]
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// The kernel says no: memory is used up.
    #[error("write the state")]
    Io(#[from] io::Error),
}

impl Slots {
    /// New, with nothing in it. Close-on-exec.
    ///
    /// # Errors
    /// As memfd_create(2).
    pub fn create() -> io::Result<Self> {
        let file =
            File::from(memfd_create(c"moq-supervise-state", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
        file.set_len(2 * SLOT)?;
        // So that whoever reads it later can rely on its length.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(Self { file, sequence: 0, next: 0 })
    }

    /// From another process. The next write goes to the slot that the content is not in.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn open(fd: OwnedFd) -> Result<(Self, Content), Unreadable> {
        let file = File::from(fd);
        // Only files in memory have seals (fcntl(2)): reading one never blocks.
        match fcntl(&file, FcntlArg::F_GET_SEALS) {
            Ok(_) => {}
            Err(Errno::EINVAL) => return Err(Unreadable::Kind),
            Err(errno) => return Err(Unreadable::Io(errno.into())),
        }
        if file.metadata().map_err(Unreadable::Io)?.len() != 2 * SLOT {
            return Err(Unreadable::Kind);
        }
        let slots = [read(&file, 0).map_err(Unreadable::Io)?, read(&file, SLOT).map_err(Unreadable::Io)?];
        let (next, content) = match slots {
            [Ok(one), Ok(other)] if one.sequence > other.sequence => (1, one),
            [Ok(_) | Err(_), Ok(other)] => (0, other),
            [Ok(one), Err(_)] => (1, one),
            [Err(one), Err(other)] => return Err(Unreadable::Slots { slots: [one, other] }),
        };
        Ok((Self { file, sequence: content.sequence, next }, content))
    }

    /// Writes over the older content.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write(&mut self, format: u32, content: &[u8]) -> Result<(), WriteError> {
        if content.len() > MAX_CONTENT {
            return Err(WriteError::TooLong { bytes: content.len() });
        }
        let sequence = self.sequence + 1;
        let slot = encode(format, sequence, content);
        self.file.write_all_at(&slot, self.next * SLOT)?;
        self.sequence = sequence;
        self.next = 1 - self.next;
        Ok(())
    }

    /// A file of its own with the content that was written last, for another process to try.
    ///
    /// # Errors
    /// As memfd_create(2) and write(2); EINVAL when nothing has been written.
    pub fn copy(&self) -> io::Result<OwnedFd> {
        let content = read(&self.file, (1 - self.next) * SLOT)?.map_err(|_| io::Error::from(Errno::EINVAL))?;
        let mut copy = Self::create()?;
        copy.write(content.format, &content.bytes).map_err(io::Error::other)?;
        Ok(copy.file.into())
    }
}

impl AsFd for Slots {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const HEADER: usize = 64;
/// What the checksum covers of the header, and where it is.
const COVERED: usize = 32;
const SLOT: u64 = (MAX_CONTENT + HEADER) as u64;
const MAGIC: [u8; 8] = *b"moqstat1";

fn encode(format: u32, sequence: u64, content: &[u8]) -> Vec<u8> {
    let mut slot = Vec::with_capacity(HEADER + content.len());
    slot.extend_from_slice(&MAGIC);
    slot.extend_from_slice(&format.to_le_bytes());
    slot.extend_from_slice(&[0; 4]);
    slot.extend_from_slice(&sequence.to_le_bytes());
    slot.extend_from_slice(&(content.len() as u64).to_le_bytes());
    let checksum = checksum(&slot, content);
    slot.extend_from_slice(&checksum);
    slot.extend_from_slice(content);
    slot
}

fn read(file: &File, at: u64) -> io::Result<Result<Content, BadSlot>> {
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, at)?;
    if header == [0; HEADER] {
        return Ok(Err(BadSlot::Blank));
    }
    if header[..8] != MAGIC {
        return Ok(Err(BadSlot::Magic));
    }
    let length = number(&header[24..32]);
    let Some(length) = usize::try_from(length).ok().filter(|length| *length <= MAX_CONTENT) else {
        return Ok(Err(BadSlot::Length(length)));
    };
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at + HEADER as u64)?;
    if header[COVERED..] != checksum(&header[..COVERED], &bytes) {
        return Ok(Err(BadSlot::Checksum));
    }
    let format = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    Ok(Ok(Content { format, sequence: number(&header[16..24]), bytes }))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn checksum(header: &[u8], content: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(header).chain_update(content).finalize().into()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests open files of other kinds")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reopen(slots: &Slots) -> Result<(Slots, Content), Unreadable> {
        Slots::open(slots.as_fd().try_clone_to_owned().expect("duplicated"))
    }

    fn written(contents: &[&[u8]]) -> Slots {
        let mut slots = Slots::create().expect("made");
        for content in contents {
            slots.write(1, content).expect("written");
        }
        slots
    }

    #[test]
    fn what_was_written_last_is_read_also_after_many_writes_and_reopenings() {
        let mut slots = Slots::create().expect("made");
        for number in 1u8..10 {
            slots.write(number.into(), &vec![number; usize::from(number) * 100]).expect("written");
            let (reopened, content) = reopen(&slots).expect("read");
            let bytes = vec![number; usize::from(number) * 100];
            assert_eq!(content, Content { format: number.into(), sequence: number.into(), bytes });
            slots = reopened;
        }
    }

    #[test]
    fn a_copy_is_a_file_of_its_own() {
        let mut slots = written(&[b"old"]);
        let copy = slots.copy().expect("copied");
        slots.write(1, b"new").expect("written");
        assert_eq!(Slots::open(copy).expect("read").1.bytes, b"old");
    }

    #[test]
    fn other_files_are_told_from_a_state() {
        let null = File::open("/dev/null").expect("there");
        assert!(matches!(Slots::open(null.into()), Err(Unreadable::Kind)));
        let (pipe, _writer) = nix::unistd::pipe().expect("made");
        assert!(matches!(Slots::open(pipe), Err(Unreadable::Kind)));
        let short = protocol::channel::sealed_memfd("short", b"moqstat1").expect("made");
        assert!(matches!(Slots::open(short), Err(Unreadable::Kind)));
        let blank = Slots::create().expect("made");
        assert!(matches!(reopen(&blank), Err(Unreadable::Slots { slots: [BadSlot::Blank, BadSlot::Blank] })));
    }

    #[test]
    fn too_much_is_refused_and_nothing_is_lost() {
        let mut slots = written(&[b"kept"]);
        assert!(matches!(slots.write(1, &vec![0; MAX_CONTENT + 1]), Err(WriteError::TooLong { .. })));
        assert_eq!(reopen(&slots).expect("read").1.bytes, b"kept");
        slots.write(1, &vec![7; MAX_CONTENT]).expect("fits");
        assert_eq!(reopen(&slots).expect("read").1.bytes.len(), MAX_CONTENT);
    }

    /// A writer that was killed has written any number of the bytes; those behind are of the content before the last.
    #[test]
    fn a_write_torn_at_any_byte_leaves_the_content_before_it() {
        let (oldest, newest) = (b"the oldest content of them".as_slice(), b"the newest, {\"a\":1}".as_slice());
        let torn = encode(1, 3, newest);
        for bytes in 0..torn.len() {
            let slots = written(&[oldest, b"the one before"]);
            slots.file.write_all_at(&torn[..bytes], 0).expect("written");
            let (mut reopened, content) = reopen(&slots).expect("read");
            assert_eq!(content.bytes, b"the one before", "torn after {bytes} bytes");
            reopened.write(1, b"after the crash").expect("written");
            assert_eq!(reopen(&reopened).expect("read").1.bytes, b"after the crash");
        }
    }

    proptest! {
        #[test]
        fn a_torn_write_never_reads_as_anything_else(
            before in prop::collection::vec(any::<u8>(), 0..300),
            last in prop::collection::vec(any::<u8>(), 0..300),
            next in prop::collection::vec(any::<u8>(), 0..300),
            cut in any::<prop::sample::Index>(),
        ) {
            let slots = written(&[&before, &last]);
            let torn = encode(1, 3, &next);
            slots.file.write_all_at(&torn[..cut.index(torn.len())], 0).expect("written");
            prop_assert_eq!(reopen(&slots).expect("read").1.bytes, last);
        }

        #[test]
        fn any_changed_bit_is_noticed(content in prop::collection::vec(any::<u8>(), 0..300), bit in any::<prop::sample::Index>()) {
            let slots = written(&[&content]);
            let mut bytes = encode(1, 1, &content);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            slots.file.write_all_at(&bytes, 0).expect("written");
            prop_assert!(reopen(&slots).is_err());
        }
    }
}
