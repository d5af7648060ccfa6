use super::{generation, inodes, table, wanted};
use crate::sockets::{GrantError, Table};
use protocol::exit;
use protocol::message::{Kind, Wanted};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

fn grant(table: &mut Table, of: u32, path: &Path, mode: Option<u32>) -> Result<(), GrantError> {
    let wanted = Wanted { mode, ..wanted("local", Kind::Unix, &path.display().to_string()) };
    let granted = table.grant(generation(of), &[wanted], None, false)?;
    assert_eq!(granted.warnings, []);
    Ok(())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("a file").permissions().mode() & 0o7777
}

#[test]
fn the_file_has_the_mode_that_the_youngest_generation_wants() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let mut table = table();
    grant(&mut table, 1, &path, None).expect("granted");
    assert_eq!(mode(&path), 0o600);
    grant(&mut table, 2, &path, Some(0o666)).expect("granted");
    assert_eq!((mode(&path), inodes(&table, 1)), (0o666, inodes(&table, 2)));
    table.retire(generation(2));
    assert_eq!(mode(&path), 0o600, "a failed upgrade changes nothing");
    UnixStream::connect(&path).expect("it listens");
    let other = dir.path().join("t");
    grant(&mut table, 3, &other, Some(0o777)).expect("granted");
    assert_eq!(mode(&other), 0o777, "whatever the umask");
}

#[test]
fn the_file_goes_with_the_last_generation_that_wants_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let mut table = table();
    for of in [1, 2] {
        grant(&mut table, of, &path, None).expect("granted");
    }
    table.retire(generation(1));
    assert!(path.exists());
    table.retire(generation(2));
    assert!(!path.exists());
}

#[test]
fn a_file_that_someone_else_put_there_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let mut table = table();
    grant(&mut table, 1, &path, None).expect("granted");
    // Beside ours for a moment, so that it can't get the same inode number.
    let _other = UnixListener::bind(dir.path().join("t")).expect("bound");
    fs::rename(dir.path().join("t"), &path).expect("replaced");
    table.retire(generation(1));
    assert!(path.exists());
}

#[test]
fn a_stale_path_is_reclaimed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    drop(UnixListener::bind(&path).expect("bound"));
    assert!(path.exists());
    grant(&mut table(), 1, &path, None).expect("nobody listens there");
    grant(&mut table(), 1, &path, None).expect("a table that is dropped leaves a stale path");
}

#[test]
fn a_path_that_someone_listens_on_is_in_use_with_pid() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let held = UnixListener::bind(&path).expect("bound");
    let error = grant(&mut table(), 1, &path, None).expect_err("held");
    assert_eq!(error.exit_status(), exit::IN_USE);
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(text.contains(&format!("pid {}", std::process::id())), "{text}");
    drop(held);
    let datagram = dir.path().join("d");
    let _held = UnixDatagram::bind(&datagram).expect("bound");
    let error = grant(&mut table(), 1, &datagram, None).expect_err("held");
    assert_eq!(error.exit_status(), exit::IN_USE);
}

#[test]
fn anything_that_is_no_socket_is_never_touched() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::File::create(&file).expect("made");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).expect("made");
    let subdir = dir.path().join("dir");
    fs::create_dir(&subdir).expect("made");
    for path in [&file, &link, &subdir] {
        let error = grant(&mut table(), 1, path, None).expect_err("refused");
        assert!(matches!(error, GrantError::NotASocket { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        fs::symlink_metadata(path).expect("still there");
    }
}

#[test]
fn a_missing_directory_is_named_with_its_remedy() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = grant(&mut table(), 1, &dir.path().join("no/s"), None).expect_err("refused").to_string();
    assert!(error.contains("no/s") && error.contains("make its directory"), "{error}");
}
