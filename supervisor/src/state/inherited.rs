//! Descriptors that came from outside, by name: sd_listen_fds(3), from a service manager or from ourselves before execve.

use super::names;
use crate::sys::inherit;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The variables.
pub const VARIABLES: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"];
/// The first descriptor that they mean (SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;
/// The name of a descriptor without one (sd_listen_fds(3)).
const UNNAMED: &str = "unknown";

/// What is left of them; whoever needs one takes it. Those that nobody takes are closed.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Several sockets of one `.socket` unit have the same name.
    fds: BTreeMap<String, Vec<OwnedFd>>,
    /// The names as they came, to tell the store which ones nobody needs.
    names: Vec<String>,
}

impl Inherited {
    /// Takes the descriptors that the variables name, and makes them close-on-exec.
    ///
    /// Variables that are meant for another process are not an error: a shim passed them on after a fork.
    /// Those that make no sense are: the second part of the result says why they were ignored.
    ///
    /// To be called once, and before anything else opens or closes descriptors.
    #[must_use]
    pub fn take(variable: impl Fn(&str) -> Option<OsString>) -> (Self, Option<String>) {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let (Some(pid), Some(count)) = (text("LISTEN_PID"), text("LISTEN_FDS")) else { return Default::default() };
        if pid.parse() != Ok(std::process::id()) {
            return Default::default();
        }
        let Some(count) = count.parse::<usize>().ok().filter(|count| *count <= MOST) else {
            return (Self::default(), Some(format!("LISTEN_FDS={count} is no number of descriptors: ignored")));
        };
        let given = text("LISTEN_FDNAMES").unwrap_or_default();
        let mut given = given.split(':').map(str::to_owned);
        let mut inherited = Self::default();
        for fd in (FIRST..).take(count) {
            let name = given.next().filter(|name| !name.is_empty()).unwrap_or_else(|| UNNAMED.to_owned());
            if name == names::NOTHING {
                continue;
            }
            // One that is not open is left out: whoever needs it says that it is missing.
            if let Some(fd) = inherit::take(fd) {
                inherited.insert(name, fd);
            }
        }
        (inherited, None)
    }

    /// Adds one.
    pub fn insert(&mut self, name: String, fd: OwnedFd) {
        self.names.push(name.clone());
        self.fds.entry(name).or_default().push(fd);
    }

    /// Whether there is one that a supervisor has left for another.
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.fds.contains_key(names::STATE)
    }

    /// The one with this name. If there are several, they can't be told apart: none.
    pub fn one(&mut self, name: &str) -> Option<OwnedFd> {
        self.fds.get(name).filter(|fds| fds.len() == 1)?;
        self.fds.remove(name)?.pop()
    }

    /// All that are not called as we call ours: of `.socket` units.
    pub fn foreign(&mut self) -> Vec<OwnedFd> {
        self.fds.extract_if(.., |name, _| !names::is_ours(name)).flat_map(|(_, fds)| fds).collect()
    }

    /// Those of our names that came, without the ones that stand for one descriptor each of which `taken` says that it was taken
    /// over. What a service manager keeps under the others is of no use to anybody, and would hide what is stored under them
    /// from now on.
    #[must_use]
    pub fn useless(&self, taken: impl Fn(&str) -> bool) -> BTreeSet<&str> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.names.iter().filter(|name| names::is_ours(name)) {
            *counts.entry(name).or_default() += 1;
        }
        counts.into_iter().filter(|(name, count)| *count > 1 || !taken(name)).map(|(name, _)| name).collect()
    }

    /// Every descriptor that nobody has taken.
    pub fn rest(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.fds.iter().flat_map(|(name, fds)| fds.iter().map(|fd| (name.as_str(), fd.as_fd())))
    }

    /// The numbers of all that nobody has taken.
    #[must_use]
    pub fn numbers(&self) -> Vec<RawFd> {
        self.fds.values().flatten().map(AsRawFd::as_raw_fd).collect()
    }
}

/// More than any limit of open files that is in use (fs.nr_open is 2^20 by default).
const MOST: usize = 1 << 20;

/// The variables with which a program of this process finds these descriptors, under the numbers that they have.
#[must_use]
pub fn variables(pid: u32, fds: &[(String, RawFd)]) -> Vec<(OsString, OsString)> {
    let last = fds.iter().map(|(_, fd)| *fd).max().unwrap_or(FIRST - 1);
    let by_number: BTreeMap<RawFd, &str> = fds.iter().map(|(name, fd)| (*fd, name.as_str())).collect();
    let all: Vec<&str> = (FIRST..=last).map(|fd| by_number.get(&fd).copied().unwrap_or(names::NOTHING)).collect();
    let variable = |name: &str, value: String| (OsStr::new(name).to_owned(), OsString::from(value));
    vec![
        variable("LISTEN_PID", pid.to_string()),
        variable("LISTEN_FDS", all.len().to_string()),
        variable("LISTEN_FDNAMES", all.join(":")),
    ]
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests open what is handed over")]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::IntoRawFd as _;

    /// Takes what `fds` would be after execve. The descriptors are given away.
    fn taken(
        fds: Vec<(&str, OwnedFd)>,
        change: impl Fn(&str, String) -> Option<String>,
    ) -> (Inherited, Option<String>) {
        let fds: Vec<(String, RawFd)> = fds.into_iter().map(|(name, fd)| (name.to_owned(), fd.into_raw_fd())).collect();
        let variables = variables(std::process::id(), &fds);
        Inherited::take(|name| {
            let (_, value) = variables.iter().find(|(other, _)| other == name)?;
            change(name, value.to_string_lossy().into_owned()).map(OsString::from)
        })
    }

    fn null() -> OwnedFd {
        File::open("/dev/null").expect("there").into()
    }

    #[test]
    fn descriptors_come_back_under_their_names_and_numbers() {
        let (one, other) = (null(), null());
        let numbers = [one.as_raw_fd(), other.as_raw_fd()];
        let (mut inherited, complaint) = taken(vec![("state", one), ("socket.0.3", other)], |_, value| Some(value));
        assert_eq!(complaint, None);
        assert!(inherited.has_state());
        let found = [inherited.one("state"), inherited.one("socket.0.3")].map(|fd| fd.expect("there").as_raw_fd());
        assert_eq!(found, numbers);
        assert!(inherited.one("state").is_none());
    }

    #[test]
    fn variables_for_another_process_are_ignored_silently() {
        let (inherited, complaint) = taken(vec![("state", null())], |name, value| {
            Some(if name == "LISTEN_PID" { "1".to_owned() } else { value })
        });
        assert!(!inherited.has_state() && complaint.is_none());
    }

    #[test]
    fn nonsense_is_ignored_with_a_line_and_missing_names_are_unknown() {
        for count in ["-1", "many", "99999999999"] {
            let (inherited, complaint) =
                taken(Vec::new(), |name, value| Some(if name == "LISTEN_FDS" { count.to_owned() } else { value }));
            assert!(inherited.names.is_empty());
            assert!(complaint.is_some_and(|line| line.contains(count)));
        }
    }

    #[test]
    fn foreign_names_are_told_from_ours_and_double_ones_are_none() {
        let mut inherited = Inherited::default();
        for name in ["relay.socket", "relay.socket", "channel.4", "channel.4", "secret"] {
            inherited.insert(name.to_owned(), null());
        }
        assert_eq!(inherited.foreign().len(), 2);
        for _ in 0..3 {
            assert!(inherited.one("channel.4").is_none(), "they can't be told apart");
        }
        assert!(inherited.one("secret").is_some());
    }

    #[test]
    fn what_came_twice_or_was_not_taken_over_is_useless() {
        let mut inherited = Inherited::default();
        for name in ["relay.socket", "state", "secret", "secret", "guard"] {
            inherited.insert(name.to_owned(), null());
        }
        let useless = |taken: &[&str]| -> Vec<String> {
            inherited.useless(|name| taken.contains(&name)).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(useless(&["state", "secret"]), ["guard", "secret"]);
        assert_eq!(useless(&[]), ["guard", "secret", "state"]);
    }
}
