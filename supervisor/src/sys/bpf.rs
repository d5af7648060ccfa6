//! Attaching a steering program to a reuseport group (socket(7), `SO_ATTACH_REUSEPORT_CBPF`). It needs no privilege.

#![expect(unsafe_code, reason = "setsockopt with a pointer to the program")]

use crate::steering::{Insn, Program};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes `program` choose the socket for every packet of the group that `member` belongs to, in place of the program
/// before it: a packet is seen by one of the two, never by none. It takes about 100 µs.
///
/// Any holder of any member can do this (and undo it), and nothing reads back what is attached; attaching the same
/// program again is how one makes sure.
///
/// # Errors
/// Names the remedy where there is one.
pub fn attach(member: BorrowedFd<'_>, program: &Program) -> Result<(), AttachError> {
    let mut filter: Vec<libc::sock_filter> = program.insns().iter().map(sock_filter).collect();
    let len = u16::try_from(filter.len()).map_err(|_| AttachError::TooLong { insns: filter.len() })?;
    let fprog = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    set(member, libc::SO_ATTACH_REUSEPORT_CBPF, &fprog).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM) => AttachError::Memory { insns: len.into() },
        Some(libc::EPERM) => AttachError::Locked,
        _ => AttachError::Other { insns: len.into(), source: error },
    })
}

/// Takes the program off the group: the kernel spreads packets by its own hash again.
///
/// # Errors
/// There is no program (ENOENT), or the socket is in no group (EINVAL).
pub fn detach(member: BorrowedFd<'_>) -> io::Result<()> {
    set(member, libc::SO_DETACH_REUSEPORT_BPF, &0i32)
}

/// Why a program was not attached; the one before it is still in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Longer than any program can be.
    #[error("a steering program of {insns} instructions is too long")]
    TooLong {
        /// Its length.
        insns: usize,
    },
    /// ENOMEM.
    #[error(
        "no room for a steering program of {insns} instructions: raise the sysctl net.core.optmem_max (131072 is the kernel's default)"
    )]
    Memory {
        /// Its length.
        insns: usize,
    },
    /// EPERM: someone set SO_LOCK_FILTER, which can't be undone.
    #[error("the socket's filter is locked (SO_LOCK_FILTER): the steering program can't be replaced through it")]
    Locked,
    /// Anything else.
    #[error("can't attach a steering program of {insns} instructions")]
    Other {
        /// Its length.
        insns: usize,
        /// What the kernel said.
        source: io::Error,
    },
}

fn sock_filter(insn: &Insn) -> libc::sock_filter {
    libc::sock_filter { code: insn.code, jt: insn.jump_true, jf: insn.jump_false, k: insn.k }
}

fn set<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for the borrow's time, `value` points to `len` readable bytes of the type that
    // `option` takes (struct sock_fprog, int), and the kernel copies the program that a sock_fprog points to before it
    // returns: its vector outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, std::ptr::from_ref(value).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
