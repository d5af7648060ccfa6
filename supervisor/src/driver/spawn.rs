//! Starting the processes: generations with a channel, commands by `sh -c`.
//!
//! Each gets its own process group, so that a terminal's Ctrl-C reaches it once, through the supervisor; `/dev/null`
//! as standard input, since generations run beside each other; our standard output and error. What happens between
//! fork and exec is in [`crate::sys::exec`].
#![expect(clippy::disallowed_methods, reason = "processes are started here, with our environment")]

use super::{environment, program};
use crate::core::SpawnError;
use crate::sys::exec::{self, Image};
use crate::sys::pidfd::Pidfd;
use std::ffi::{CString, NulError, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that tells a child where its end of the channel is.
const CHANNEL: &str = "MOQ_SUPERVISE_FD";

/// A process that has been started.
#[derive(Debug)]
pub(super) struct Spawned {
    /// Its number, and its group's.
    pub(super) pid: u32,
    /// Signals go through it.
    pub(super) pidfd: Pidfd,
}

/// A generation that has been started.
#[derive(Debug)]
pub(super) struct Started {
    /// Its process.
    pub(super) process: Spawned,
    /// What really runs, links resolved.
    pub(super) file: PathBuf,
}

/// Starts the program as a generation with this end of its channel.
pub(super) fn generation(name: &OsStr, args: &[OsString], channel: OwnedFd) -> Result<Started, SpawnError> {
    let file = program::resolve(name, std::env::var_os("PATH").as_deref())?;
    let mut environment = environment::clean(std::env::vars_os());
    environment.push((CHANNEL.into(), channel.as_raw_fd().to_string().into()));
    let image = image(&file, name, args, &environment)
        .map_err(|_| SpawnError::NotExecutable("an argument contains a NUL byte".to_owned()))?;
    let mut command = Command::new(&file);
    exec::clean_slate(&mut command, Some(channel));
    exec::execute(&mut command, image);
    let process = start(&mut command, Stdio::null()).map_err(|error| {
        let mut line = format!("{} can't be executed: {error}", file.display());
        if error.raw_os_error() == Some(libc::ENOEXEC) {
            line.push_str("; it is no program for this machine, or a script without a first line such as #!/bin/sh");
        }
        match error.raw_os_error() {
            Some(libc::ENOENT) => SpawnError::NotFound(line),
            Some(libc::EACCES | libc::ENOEXEC | libc::EPERM | libc::ENOTDIR | libc::ELIBBAD) => {
                SpawnError::NotExecutable(line)
            }
            Some(_) | None => SpawnError::Other(line),
        }
    })?;
    Ok(Started { process, file })
}

fn image(
    file: &Path,
    name: &OsStr,
    args: &[OsString],
    environment: &[(OsString, OsString)],
) -> Result<Image, NulError> {
    let string = |text: &OsStr| CString::new(text.as_bytes());
    let argv: Result<_, _> = std::iter::once(name).chain(args.iter().map(OsString::as_os_str)).map(string).collect();
    let envp: Result<_, _> = environment
        .iter()
        .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect();
    Ok(Image::new(string(file.as_os_str())?, argv?, envp?))
}

/// Starts a command of the operator.
pub(super) fn shell(script: &str) -> io::Result<Spawned> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).env_clear().envs(environment::clean(std::env::vars_os()));
    exec::clean_slate(&mut command, None);
    start(&mut command, Stdio::null())
}

/// Starts a program to hear what it says: the result is what it writes to standard output and standard error. The first
/// of `args` is its name; `input` is its standard input.
pub(super) fn captured(file: &Path, args: &[OsString], input: Option<OwnedFd>) -> io::Result<(Spawned, OwnedFd)> {
    let (name, args) = args.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let image = image(file, name, args, &environment::clean(std::env::vars_os()))?;
    let (output, theirs) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let mut command = Command::new(file);
    command.stdout(theirs.try_clone()?).stderr(theirs);
    exec::clean_slate(&mut command, None);
    exec::execute(&mut command, image);
    // The command, and with it our copy of the writing end, is gone at the end of this function.
    let process = start(&mut command, input.map_or_else(Stdio::null, Stdio::from))?;
    Ok((process, output))
}

/// Starts a program that is to outlive us, with this as its standard input. The first of `args` is its name.
pub(super) fn apart(file: &Path, args: &[OsString], input: OwnedFd) -> io::Result<Spawned> {
    let (name, args) = args.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let image = image(file, name, args, &environment::clean(std::env::vars_os()))?;
    let mut command = Command::new(file);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    exec::clean_slate(&mut command, None);
    exec::execute(&mut command, image);
    start(&mut command, Stdio::from(input))
}

fn start(command: &mut Command, input: Stdio) -> io::Result<Spawned> {
    let child = command.stdin(input).process_group(0).spawn()?;
    // It can't have been reaped yet: only the loop's thread does that, and this is it.
    let pidfd = Pidfd::open(child.id())?;
    Ok(Spawned { pid: child.id(), pidfd })
}
