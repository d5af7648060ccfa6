//! What the service manager keeps for the next supervisor process (its fd store).

use super::notify::Notify;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

/// What it has been told to keep.
#[derive(Debug)]
pub(super) struct Store {
    names: BTreeSet<String>,
    /// How many descriptors fit, if that is known. `None` in it: nothing says.
    capacity: Option<usize>,
    /// So many changes were told.
    told: u64,
    /// So many of them a barrier has confirmed.
    confirmed: u64,
}

impl Store {
    /// With nothing in it that we know of. `capacity`: `$FDSTORE`, which systemd sets from 254 on.
    pub(super) const fn new(capacity: Option<usize>) -> Self {
        Self { names: BTreeSet::new(), capacity, told: 0, confirmed: 0 }
    }

    /// So many descriptors fit.
    pub(super) fn holds(&mut self, capacity: usize) {
        self.capacity = Some(capacity);
    }

    /// Whether it is not known how many fit.
    pub(super) const fn is_unknown(&self) -> bool {
        self.capacity.is_none()
    }

    /// Stores those that are new.
    pub(super) fn add(&mut self, notify: &mut Notify, fds: &[(String, BorrowedFd<'_>)]) {
        if !notify.wanted() {
            return;
        }
        for (name, fd) in fds {
            if !self.names.contains(name) {
                notify.store(name, *fd);
                self.names.insert(name.clone());
                self.told += 1;
            }
        }
    }

    /// Removes those that are not among these.
    pub(super) fn prune(&mut self, notify: &mut Notify, fds: &[(String, BorrowedFd<'_>)]) {
        let wanted: BTreeSet<&str> = fds.iter().map(|(name, _)| name.as_str()).collect();
        for name in self.names.extract_if(.., |name| !wanted.contains(name.as_str())) {
            notify.remove(&name);
            self.told += 1;
        }
    }

    /// Removes what was there before us and is of no use.
    pub(super) fn discard<'a>(&mut self, notify: &mut Notify, names: impl Iterator<Item = &'a String>) {
        for name in names.filter(|name| !self.names.contains(*name)) {
            notify.remove(name);
            self.told += 1;
        }
    }

    /// How many changes were told so far: what [`Store::confirm`] takes once a barrier that was set now is through.
    pub(super) const fn told(&self) -> u64 {
        self.told
    }

    /// A barrier confirms so many changes.
    pub(super) fn confirm(&mut self, changes: u64) {
        self.confirmed = self.confirmed.max(changes);
    }

    /// Whether all that was told is confirmed.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.confirmed == self.told
    }

    /// Why the next supervisor would not find everything, whatever is confirmed; with the remedy.
    pub(super) fn trouble(&self) -> Option<String> {
        let needed = self.names.len();
        match self.capacity {
            Some(0) => Some(
                "there is no fd store: if the supervisor is killed or restarted, the service is interrupted; set \
                 FileDescriptorStoreMax= in the unit"
                    .to_owned(),
            ),
            Some(capacity) if capacity < needed => Some(format!(
                "the fd store holds {capacity} descriptors and {needed} are needed: if the supervisor is killed or \
                 restarted, the service is interrupted; raise FileDescriptorStoreMax= in the unit"
            )),
            Some(_) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs::File;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixDatagram;

    /// A manager that keeps no descriptors but notes what it is told.
    struct Manager(UnixDatagram, Notify);

    impl Manager {
        fn new(folder: &std::path::Path) -> Self {
            let path = folder.join("notify");
            let socket = UnixDatagram::bind(&path).expect("bound");
            socket.set_nonblocking(true).expect("set");
            Self(socket, Notify::new(Some(OsStr::new(&path))).expect("usable"))
        }

        fn heard(&self) -> Vec<String> {
            let mut buffer = [0; 1_000];
            let heard = std::iter::from_fn(|| self.0.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec()));
            heard.map(|text| String::from_utf8(text).expect("text")).collect()
        }
    }

    #[expect(clippy::disallowed_methods, reason = "something to store")]
    fn null() -> File {
        File::open("/dev/null").expect("there")
    }

    #[test]
    fn what_is_new_is_stored_once_and_what_is_gone_removed_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut manager = Manager::new(folder.path());
        let (null, mut store) = (null(), Store::new(None));
        let named = |names: &[&str]| -> Vec<(String, BorrowedFd<'_>)> {
            names.iter().map(|name| ((*name).to_owned(), null.as_fd())).collect()
        };
        let stored = |name: &str| format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
        let removed = |name: &str| format!("FDSTOREREMOVE=1\nFDNAME={name}");
        store.add(&mut manager.1, &named(&["a", "b"]));
        store.add(&mut manager.1, &named(&["a", "b"]));
        assert_eq!(manager.heard(), [stored("a"), stored("b")]);
        store.add(&mut manager.1, &named(&["b", "c"]));
        store.prune(&mut manager.1, &named(&["b", "c"]));
        assert_eq!(manager.heard(), [stored("c"), removed("a")]);
        store.discard(&mut manager.1, [&"b".to_owned(), &"x".to_owned()].into_iter());
        assert_eq!(manager.heard(), [removed("x")]);
    }

    #[test]
    fn it_is_complete_when_everything_fits_and_is_confirmed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut manager = Manager::new(folder.path());
        let (null, mut store) = (null(), Store::new(Some(1)));
        let fds = ["a", "b"].map(|name| (name.to_owned(), null.as_fd()));
        store.add(&mut manager.1, &fds[..1]);
        let told = store.told();
        assert!(!store.is_confirmed());
        store.confirm(told);
        assert!(store.is_confirmed() && store.trouble().is_none());
        store.add(&mut manager.1, &fds);
        assert!(!store.is_confirmed());
        assert!(store.trouble().is_some_and(|line| line.contains("FileDescriptorStoreMax=")));
        store.holds(2);
        assert!(store.trouble().is_none());
    }

    /// The socket of a manager that hangs holds few messages: the rest waits here, in order.
    #[test]
    fn a_manager_that_reads_late_gets_everything_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut manager = Manager::new(folder.path());
        let null = null();
        for number in 0..2_000 {
            manager.1.store(&number.to_string(), null.as_fd());
        }
        let mut heard = Vec::new();
        while heard.len() < 2_000 {
            let more = manager.heard();
            assert!(!more.is_empty(), "stuck after {}", heard.len());
            heard.extend(more);
            manager.1.flush();
        }
        assert!(heard.iter().enumerate().all(|(number, text)| text.ends_with(&format!("FDNAME={number}"))));
    }
}
