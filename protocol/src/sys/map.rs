//! Memory that is shared with other processes.

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A whole file, mapped shared and writable.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<c_void>,
    len: usize,
    file: File,
}

// SAFETY: the mapping belongs to no thread, and its memory is only reached as atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps a file of `len` bytes whose size is sealed (the caller has checked both), so that no page of it can vanish.
    ///
    /// # Errors
    ///
    /// As mmap(2).
    pub(crate) fn new(file: File, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice; it touches no memory of ours.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)? };
        let start = NonNull::new(start).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, len, file })
    }

    /// Has the kernel allocate these bytes, so that no access to them can fail (SIGBUS) for want of memory.
    ///
    /// # Errors
    ///
    /// There is none left.
    pub(crate) fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::empty(), offset, len)?)
    }

    /// All of it as words of this machine.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `len` bytes long and stays until `self` is dropped; any bits are a valid
        // AtomicU64, and that other processes write it too is what atomics allow.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<AtomicU64>(), self.len / 8) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and no reference into it is left, since they borrow `self`.
        // An error would mean that it is not mapped.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len) };
    }
}
