//! `--secret-file`.

use super::Failure;
use protocol::exit;
use protocol::keys::Secret;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use zeroize::Zeroizing;

/// Reads 32 bytes, raw or as 64 hex digits (white space around them is ignored), from a file that only its owner can
/// read.
pub(super) fn read(path: &Path) -> Result<Secret, Failure> {
    let bad = |what: String| Failure::new(exit::USAGE, format!("--secret-file {}: {what}", path.display()));
    // Not to wait for the other end of a fifo, nor to take a terminal.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path);
    let mut file = file.map_err(|error| bad(format!("can't be read: {error}; make one with: openssl rand -hex 32")))?;
    let meta = file.metadata().map_err(|error| bad(format!("can't be read: {error}")))?;
    if !meta.is_file() {
        return Err(bad("is not a regular file; make one with: openssl rand -hex 32".to_owned()));
    }
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(bad(format!("others may read it (mode {mode:04o}); run: chmod 600 {}", path.display())));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(LIMIT));
    let read = file.by_ref().take(LIMIT as u64).read_to_end(&mut text);
    read.map_err(|error| bad(format!("can't be read: {error}")))?;
    let bytes = parse(&text)
        .ok_or_else(|| bad("is neither 32 bytes nor 64 hex digits; make one with: openssl rand -hex 32".to_owned()))?;
    Ok(Secret::from_bytes(*bytes))
}

/// More than any right content; the vector never grows past it, so that no copy is left behind unwiped.
const LIMIT: usize = 128;

fn parse(text: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    if text.len() == bytes.len() {
        bytes.copy_from_slice(text);
        return Some(bytes);
    }
    hex::decode_to_slice(text.trim_ascii(), bytes.as_mut()).ok()?;
    Some(bytes)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that are read")]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn raw_bytes_and_hex_digits_are_the_same_secret() {
        let raw = [0xa5; 32];
        assert_eq!(parse(&raw).as_deref(), Some(&raw));
        assert_eq!(parse(format!("  {}\n", "a5".repeat(32)).as_bytes()).as_deref(), Some(&raw));
    }

    #[test]
    fn any_other_content_is_refused() {
        for text in [&b""[..], &[1; 31], &[1; 33], &[b'a'; 63], &[b'g'; 64], &[b'a'; 66]] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("secret");
        std::fs::write(&path, "a5".repeat(32)).expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("mode set");
        let failure = read(&path).expect_err("refused");
        assert_eq!(failure.status, exit::USAGE);
        assert!(failure.message.contains("chmod 600"), "{failure}");
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("mode set");
        assert!(read(&path).is_ok());
    }

    #[test]
    fn a_directory_and_a_missing_file_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(read(dir.path()).expect_err("refused").status, exit::USAGE);
        assert_eq!(read(&dir.path().join("none")).expect_err("refused").status, exit::USAGE);
    }
}
