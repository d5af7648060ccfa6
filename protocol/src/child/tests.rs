//! Against a supervisor in the test itself, at the other end of the channel.

use super::*;
use crate::channel::sealed_memfd;
use crate::keys::{BootId, ChildKeys, Secret};
use crate::message::{
    Adopt, Adopted, DrainSettings as WireDrain, Generation, GenerationStats, Kind, LedgerOf, Route, Stats, Wanted,
};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

mod adopt;
mod talk;

struct FakeSupervisor(AsyncFd<Channel>);

impl FakeSupervisor {
    fn send(&self, message: &ToChild, fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.0.get_ref().send(message, &fds).unwrap();
    }

    async fn recv(&self) -> Option<(FromChild, Vec<OwnedFd>)> {
        let next = async {
            loop {
                let mut ready = self.0.readable().await.unwrap();
                match self.0.get_ref().recv::<FromChild>() {
                    Ok(Some(Received::Message { message, fds })) => return Some((message, fds)),
                    Ok(Some(Received::Unknown { message })) => panic!("unknown message {message}"),
                    Ok(None) => return None,
                    Err(RecvError::WouldBlock) => ready.clear_ready(),
                    Err(error) => panic!("{error}"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), next).await.expect("a message of the child")
    }

    async fn message(&self) -> FromChild {
        self.recv().await.expect("the child to be there").0
    }
}

fn pair() -> (FakeSupervisor, Unadopted) {
    let (supervisor, child) = Channel::pair().unwrap();
    (FakeSupervisor(crate::sys::watch(supervisor).unwrap()), Unadopted::new(child))
}

fn hello(listeners: Vec<Wanted>) -> Hello {
    Hello::new("test", "1", listeners)
}

fn keys() -> ChildKeys {
    Secret::from_bytes([5; 32]).child_keys(&BootId::from_bytes([6; 16]), Generation(3))
}

fn keys_fd() -> OwnedFd {
    sealed_memfd("keys", &keys().to_bytes()).unwrap()
}

fn udp() -> OwnedFd {
    UdpSocket::bind("127.0.0.1:0").unwrap().into()
}

fn tcp() -> OwnedFd {
    TcpListener::bind("127.0.0.1:0").unwrap().into()
}

fn adopted(name: &str, kind: Kind, members: &[u16]) -> Adopted {
    Adopted { name: name.into(), kind, address: "127.0.0.1:9".into(), members: members.to_vec() }
}

fn adopt(sockets: Vec<Adopted>) -> Adopt {
    Adopt {
        protocol: 1,
        generation: Generation(3),
        kept: vec![],
        sockets,
        gro: false,
        drain: WireDrain { timeout_ms: 1_500, spread_ms: None },
        older_live: true,
        ledger: false,
        links: 0,
        more: false,
    }
}

/// A child without listeners, and its supervisor, past `adopt`.
async fn adopted_child() -> (FakeSupervisor, Sender, Receiver) {
    let (supervisor, child) = pair();
    supervisor.send(&ToChild::Adopt(adopt(vec![])), &[keys_fd()]);
    let (link, _) = child.hello(hello(vec![])).await.unwrap();
    assert!(matches!(supervisor.message().await, FromChild::Hello(_)));
    let (sender, receiver) = link.split();
    (supervisor, sender, receiver)
}
