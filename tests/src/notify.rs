//! A stand-in for the service manager's notification socket (sd_notify(3)).

use crate::wait;
use anyhow::Context as _;
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt};
use std::ffi::OsString;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::Interest;

/// One datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Who sent it, as the kernel says (SO_PASSCRED).
    pub pid: u32,
    /// Its assignments, a line each.
    pub text: String,
}

impl Notification {
    /// True if `assignment` ("READY=1") is one of its lines.
    #[must_use]
    pub fn has(&self, assignment: &str) -> bool {
        self.text.lines().any(|line| line == assignment)
    }
}

/// A bound notification socket that keeps everything it gets.
#[derive(Debug)]
pub struct NotifySocket {
    address: OsString,
    received: Arc<Mutex<Vec<Notification>>>,
}

impl NotifySocket {
    /// Binds one as a file in `folder`.
    ///
    /// # Errors
    /// It can't be bound.
    pub fn in_folder(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).with_context(|| format!("binding {}", path.display()))?;
        Self::serve(socket, path.into_os_string())
    }

    /// Binds one in the abstract namespace (unix(7)), as some service managers do.
    ///
    /// # Errors
    /// It can't be bound.
    pub fn in_abstract_namespace() -> anyhow::Result<Self> {
        let name = format!("moq-supervise-test-{}-{:016x}", std::process::id(), rand::random::<u64>());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?).context("binding it")?;
        Self::serve(socket, format!("@{name}").into())
    }

    fn serve(socket: UnixDatagram, address: OsString) -> anyhow::Result<Self> {
        setsockopt(&socket, sockopt::PassCred, &true).context("SO_PASSCRED")?;
        socket.set_nonblocking(true)?;
        let socket = tokio::net::UnixDatagram::from_std(socket)?;
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::downgrade(&received);
        tokio::spawn(async move {
            while let Ok(()) = socket.readable().await {
                let Some(sink) = sink.upgrade() else { return };
                if let Ok(notification) = socket.try_io(Interest::READABLE, || receive(&socket)) {
                    sink.lock().unwrap_or_else(PoisonError::into_inner).push(notification);
                }
            }
        });
        Ok(Self { address, received })
    }

    /// The value for NOTIFY_SOCKET.
    #[must_use]
    pub fn address(&self) -> &OsString {
        &self.address
    }

    /// Everything received so far, in order.
    #[must_use]
    pub fn received(&self) -> Vec<Notification> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `assignment` has come.
    ///
    /// # Errors
    /// It has not come until `deadline`.
    pub async fn wait_for(&self, assignment: &str, deadline: Duration) -> anyhow::Result<Notification> {
        wait::eventually(deadline, &format!("{assignment} on the notification socket"), async || {
            Ok(self.received().into_iter().find(|notification| notification.has(assignment)))
        })
        .await
        .with_context(|| format!("received: {:?}", self.received()))
    }
}

fn receive(socket: &tokio::net::UnixDatagram) -> std::io::Result<Notification> {
    let mut bytes = [0; 4096];
    let mut control = cmsg_space!(UnixCredentials);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())?;
    let sender = message.cmsgs()?.find_map(|part| {
        let ControlMessageOwned::ScmCredentials(credentials) = part else { return None };
        u32::try_from(credentials.pid()).ok()
    });
    let length = message.bytes;
    Ok(Notification { pid: sender.unwrap_or(0), text: String::from_utf8_lossy(&bytes[..length]).into_owned() })
}
