//! What the service manager is told (sd_notify(3)). The supervisor is the only one that speaks to it.
//!
//! By hand, because the sd-notify crate (0.5) can't send to an abstract socket, which is what systemd gives to a
//! service manager nested in a container.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::core::Time;

/// At most one STATUS in this time if only numbers in it have changed: the manager stores each.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// The way to the service manager, if there is one.
#[derive(Debug)]
pub(super) struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    said: String,
    quiet_until: Time,
}

impl Notify {
    /// To the manager named by NOTIFY_SOCKET: a path, or an abstract name after `@`.
    ///
    /// # Errors
    /// When the variable names something that can't be sent to.
    pub(super) fn new(address: Option<&OsStr>) -> io::Result<Self> {
        let manager = match address.filter(|address| !address.is_empty()) {
            None => None,
            Some(address) => {
                let address = match address.as_bytes().strip_prefix(b"@") {
                    Some(name) => SocketAddr::from_abstract_name(name)?,
                    None => SocketAddr::from_pathname(address)?,
                };
                let socket = UnixDatagram::unbound()?;
                // A manager that does not read must not stop the loop.
                socket.set_nonblocking(true)?;
                Some((socket, address))
            }
        };
        Ok(Self { manager, said: String::new(), quiet_until: Time::default() })
    }

    /// Whether there is anybody to tell.
    pub(super) fn wanted(&self) -> bool {
        self.manager.is_some()
    }

    /// Sends assignments, one per line. A lost one is logged: nothing else can be done.
    pub(super) fn say(&self, lines: &str) {
        let Some((socket, address)) = &self.manager else { return };
        if let Err(error) = socket.send_to_addr(lines.as_bytes(), address) {
            tracing::warn!("the service manager can't be told {lines:?}: {error}");
        }
    }

    /// Sends the status text if it has changed. One that only counts on waits until the last one is old enough: then
    /// it is said when that will be.
    pub(super) fn status(&mut self, now: Time, text: &str, counts_on: bool) -> Option<Time> {
        if text == self.said {
            return None;
        }
        if counts_on && now < self.quiet_until {
            return Some(self.quiet_until);
        }
        self.say(&format!("STATUS={text}"));
        text.clone_into(&mut self.said);
        self.quiet_until = now.after(STATUS_INTERVAL);
        None
    }
}
