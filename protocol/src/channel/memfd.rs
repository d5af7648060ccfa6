//! Secrets travel in memfds, never in JSON: no log or trace of the channel can show them.

use super::MemfdError;
use rustix::fs::{FileType, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use zeroize::Zeroizing;

/// A memfd (close-on-exec) that holds these bytes and can't be changed any more. The name is for /proc alone.
///
/// # Errors
///
/// As memfd_create(2) and write(2).
pub fn sealed_memfd(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

/// The content of a memfd from another process, whatever its file offset is. It need not be sealed: if its sender
/// changes it meanwhile, the sender gets what it deserves.
///
/// # Errors
///
/// [`MemfdError`] when it is not a memfd, or holds more than `limit` bytes.
pub fn read_memfd(fd: BorrowedFd<'_>, limit: usize) -> Result<Zeroizing<Vec<u8>>, MemfdError> {
    let stat = fstat(fd).map_err(|errno| MemfdError::Io(errno.into()))?;
    // Only files in memory have seals (fcntl(2)); one on a file system that hangs, a fifo or a socket would block us.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || fcntl_get_seals(fd).is_err() {
        return Err(MemfdError::Kind);
    }
    let bytes = u64::try_from(stat.st_size).map_err(|_| MemfdError::Kind)?;
    let length = usize::try_from(bytes).ok().filter(|length| *length <= limit);
    let length = length.ok_or(MemfdError::TooLong { bytes, limit })?;
    let mut content = Zeroizing::new(vec![0; length]);
    let file = File::from(fd.as_fd().try_clone_to_owned().map_err(MemfdError::Io)?);
    file.read_exact_at(&mut content, 0).map_err(MemfdError::Io)?;
    Ok(content)
}
