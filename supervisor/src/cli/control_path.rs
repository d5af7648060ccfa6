//! Where the control socket is when nobody says.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// `$RUNTIME_DIRECTORY/control.sock`, else `$XDG_RUNTIME_DIR/moq-supervise/control.sock`, else
/// `/run/moq-supervise/control.sock`. The supervisor and its commands use the same rule, so that they meet.
///
/// systemd lists several directories in RUNTIME_DIRECTORY separated by colons (systemd.exec(5)): the first is taken.
pub fn default_control_path(environment: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    if let Some(directories) = set("RUNTIME_DIRECTORY") {
        let first = std::env::split_paths(&directories).next().unwrap_or_default();
        return first.join(SOCKET);
    }
    if let Some(directory) = set("XDG_RUNTIME_DIR") {
        return Path::new(&directory).join("moq-supervise").join(SOCKET);
    }
    Path::new("/run/moq-supervise").join(SOCKET)
}

const SOCKET: &str = "control.sock";

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &'static [(&str, &str)]) -> PathBuf {
        default_control_path(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_service_managers_directory_comes_first_then_the_users_then_run() {
        let both = with(&[("XDG_RUNTIME_DIR", "/run/user/7"), ("RUNTIME_DIRECTORY", "/run/relay")]);
        assert_eq!(both, Path::new("/run/relay/control.sock"));
        assert_eq!(with(&[("RUNTIME_DIRECTORY", "/run/a:/run/b")]), Path::new("/run/a/control.sock"));
        let user = with(&[("XDG_RUNTIME_DIR", "/run/user/7"), ("RUNTIME_DIRECTORY", "")]);
        assert_eq!(user, Path::new("/run/user/7/moq-supervise/control.sock"));
        assert_eq!(with(&[]), Path::new("/run/moq-supervise/control.sock"));
    }
}
