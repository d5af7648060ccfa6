//! What happens in a child between fork and exec.
//!
//! Only async-signal-safe calls may be made there, because another thread may have held any lock at the fork. These are:
//! sigaction(2), sigprocmask(2), close_range(2), fcntl(2), execve(2).
#![expect(unsafe_code, reason = "pre_exec, and calls that neither nix nor std wraps as async-signal-safe")]

use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the program of `command` start with a clean slate: every signal at its default disposition, none blocked, and
/// no descriptor above standard error but `keep` (if any), under the number that it has here.
///
/// std resets the mask and SIGPIPE alone; a signal that we inherited as ignored (nohup) would stay ignored.
/// `keep` lives until `command` is dropped.
pub fn clean_slate(command: &mut Command, keep: Option<OwnedFd>) {
    // SAFETY: the closure makes async-signal-safe calls only (see the module) and neither allocates nor takes locks.
    unsafe {
        command.pre_exec(move || {
            default_signals()?;
            close_all_at_exec()?;
            keep.as_ref().map_or(Ok(()), |keep| open_at_exec(keep.as_raw_fd()))
        });
    }
}

/// A program with its arguments (the first is its name) and environment (`NAME=value`), as execve(2) wants them.
#[derive(Debug)]
pub struct Image {
    file: CString,
    /// Owns what `argv` and `envp` point to.
    _strings: Vec<CString>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
}

// SAFETY: the pointers lead into `_strings`, which is never changed and lives as long.
unsafe impl Send for Image {}
// SAFETY: as for Send; nothing is mutable.
unsafe impl Sync for Image {}

impl Image {
    /// Lays everything out, so that nothing is allocated after the fork.
    #[must_use]
    pub fn new(file: CString, args: Vec<CString>, environment: Vec<CString>) -> Self {
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argv, envp) = (pointers(&args), pointers(&environment));
        // Moving a CString moves its handle, not its bytes.
        Self { file, _strings: args.into_iter().chain(environment).collect(), argv, envp }
    }
}

/// Makes `command` execute this image, after whatever was arranged before.
///
/// std ends in execvp(3), which hands a file of an unknown format to `sh` instead of failing with ENOEXEC: a broken
/// program would run as a script.
pub fn execute(command: &mut Command, image: Image) {
    // SAFETY: the closure calls execve alone, with pointers into the image that it owns, and neither allocates nor
    // takes locks.
    unsafe {
        command.pre_exec(move || {
            // The whole image, not single fields: it is what is Send and Sync.
            let image = &image;
            libc::execve(image.file.as_ptr(), image.argv.as_ptr(), image.envp.as_ptr());
            Err(io::Error::last_os_error())
        });
    }
}

fn default_signals() -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: all-zero is a valid sigaction: SIG_DFL, no flags, an empty mask.
        let action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: action is valid and no old action is asked for. It fails with EINVAL for SIGKILL, SIGSTOP and the
        // numbers that libc keeps for itself, which are at their default anyway.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
    // SAFETY: all-zero is a valid sigset_t on Linux, and sigemptyset below makes it one by contract.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: none is a live sigset_t.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: none is a valid set and no old set is asked for; the child has one thread.
    let result = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Marks rather than closes: std still needs its pipe for the error of exec.
fn close_all_at_exec() -> io::Result<()> {
    // SAFETY: takes three integers; marking descriptors close-on-exec invalidates none.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Linux before 5.11. Our own descriptors are close-on-exec from their creation; this call only catches those of
        // whoever started us.
        Some(libc::ENOSYS | libc::EINVAL) => Ok(()),
        // A seccomp filter that does not know the call (old container runtimes).
        Some(libc::EPERM) => Ok(()),
        Some(_) | None => Err(error),
    }
}

fn open_at_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is owned by the closure that calls this; F_SETFD takes an integer.
    let result = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, fcntl};
    use std::io::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    #[test]
    fn a_child_gets_default_signals_and_one_descriptor() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        // A number that the shell won't use itself; F_DUPFD leaves close-on-exec off.
        let leaked = fcntl(&ours, FcntlArg::F_DUPFD(300)).expect("a duplicate");
        let keep = OwnedFd::from(theirs);
        let number = keep.as_raw_fd();
        let mut command = Command::new("sh");
        // exec: a shell that forks blocks all signals meanwhile, and its child would see that.
        command.args(["-c", "cd /proc/self/fd && echo *; exec grep -E '^Sig(Blk|Ign)' /proc/self/status"]);
        clean_slate(&mut command, Some(keep));
        let output = command.output().expect("sh runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let mut lines = text.lines();
        let fds: Vec<RawFd> = lines.next().expect("fds").split(' ').map(|fd| fd.parse().expect("a number")).collect();
        assert!(fds.contains(&number), "the channel is there: {text}");
        assert!(!fds.contains(&leaked), "nothing else is: {text}");
        for line in lines {
            let set = u64::from_str_radix(line.split_ascii_whitespace().last().expect("a mask"), 16).expect("hex");
            // 32 and 33 are libc's own; it lets nobody set them.
            assert_eq!(set & !(0b11 << 31), 0, "{line}");
        }
    }

    #[test]
    fn a_file_of_an_unknown_format_is_an_error_and_no_script() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("garbage");
        let mut file = std::fs::File::options().create_new(true).write(true).mode(0o755).open(&path).expect("made");
        file.write_all(b"echo I am no program\n").expect("written");
        drop(file);
        let name = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        let mut command = Command::new(&path);
        execute(&mut command, Image::new(name.clone(), vec![name], Vec::new()));
        assert_eq!(command.status().expect_err("refused").raw_os_error(), Some(libc::ENOEXEC));
    }
}
