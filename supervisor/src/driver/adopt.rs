//! `adopt` in as many messages as it takes.

use crate::sockets::Handed;
use protocol::channel::{MAX_FDS, MAX_MESSAGE};
use protocol::message::Adopt;
use std::os::fd::BorrowedFd;

/// One of the messages.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// What it says.
    pub(super) adopt: Adopt,
    /// The descriptors beside it.
    pub(super) fds: Vec<BorrowedFd<'a>>,
    /// Its length as JSON, at most.
    bytes: usize,
}

/// Splits so that no message has more than [`MAX_FDS`] descriptors or [`MAX_MESSAGE`] bytes. A listener, which has at
/// most [`MAX_FDS`] members, stays whole.
///
/// `head` is what all messages have in common, and `secrets` (the keys, one memfd per name in `head.kept`, the ledger if
/// `head.ledger`) go beside the first.
pub(super) fn split<'a>(head: Adopt, secrets: Vec<BorrowedFd<'a>>, listeners: Vec<Handed<'a>>) -> Vec<Part<'a>> {
    let rest = Adopt { kept: Vec::new(), sockets: Vec::new(), more: true, ..head.clone() };
    // With `more` written out, so that the last message, which goes without, is no longer.
    let mut current = Part::new(Adopt { more: true, ..head }, secrets);
    let mut parts = Vec::new();
    for Handed { socket, fds } in listeners {
        let bytes = length(&socket) + 1;
        if current.fds.len() + fds.len() > MAX_FDS || current.bytes + bytes > MAX_MESSAGE {
            parts.push(std::mem::replace(&mut current, Part::new(rest.clone(), Vec::new())));
        }
        current.bytes += bytes;
        current.adopt.sockets.push(socket);
        current.fds.extend(fds);
    }
    current.adopt.more = false;
    parts.push(current);
    parts
}

impl<'a> Part<'a> {
    fn new(adopt: Adopt, fds: Vec<BorrowedFd<'a>>) -> Self {
        let bytes = length(&adopt) + TAG;
        Self { adopt, fds, bytes }
    }
}

/// `"type":"adopt",`
const TAG: usize = 15;

/// The length as JSON; one that can't be written (it always can) takes a message of its own, which then fails by name.
fn length<T: serde::Serialize>(value: &T) -> usize {
    serde_json::to_vec(value).map_or(MAX_MESSAGE, |text| text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use protocol::message::{Adopted, DrainSettings, Generation, Kind, ToChild};
    use std::os::fd::{AsFd as _, OwnedFd};

    fn descriptor() -> OwnedFd {
        protocol::channel::sealed_memfd("test", b"").expect("made")
    }

    fn bytes(part: &Part<'_>) -> usize {
        serde_json::to_vec(&ToChild::Adopt(part.adopt.clone())).expect("JSON").len()
    }

    fn head(kept: usize) -> Adopt {
        Adopt {
            protocol: 1,
            generation: Generation(65_535),
            kept: (0..kept).map(|number| format!("{number:064}")).collect(),
            sockets: Vec::new(),
            gro: false,
            drain: DrainSettings { timeout_ms: 600_000, spread_ms: None },
            older_live: true,
            ledger: false,
            links: 15,
            more: false,
        }
    }

    fn handed(number: usize, members: usize, fd: &OwnedFd) -> Handed<'_> {
        let socket = Adopted {
            name: format!("{number:064}"),
            kind: Kind::Quic,
            address: "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535".to_owned(),
            members: (0..members).map(|member| u16::try_from(4_096 - member).expect("small")).collect(),
        };
        Handed { socket, fds: vec![fd.as_fd(); members] }
    }

    proptest! {
        #[test]
        fn every_part_fits_and_together_they_are_the_whole(
            kept in 0usize..=16,
            members in proptest::collection::vec(1usize..=253, 0..60),
        ) {
            let fd = descriptor();
            let secrets = vec![fd.as_fd(); kept + 1];
            let listeners = members.iter().enumerate().map(|(number, count)| handed(number, *count, &fd)).collect();
            let parts = split(head(kept), secrets, listeners);
            let mut seen = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                let adopt = &part.adopt;
                prop_assert!(bytes(part) <= MAX_MESSAGE);
                prop_assert!(part.fds.len() <= MAX_FDS);
                let sockets: usize = adopt.sockets.iter().map(|socket| socket.members.len()).sum();
                let secrets = if index == 0 { kept + 1 } else { 0 };
                prop_assert_eq!(part.fds.len(), secrets + sockets);
                prop_assert_eq!(adopt.kept.len(), if index == 0 { kept } else { 0 });
                prop_assert_eq!(adopt.more, index + 1 < parts.len());
                seen.extend(adopt.sockets.iter().map(|socket| socket.members.len()));
            }
            prop_assert_eq!(seen, members);
        }

        #[test]
        fn many_small_listeners_are_split_by_length(count in 0usize..2_000) {
            let fd = descriptor();
            let listeners = (0..count).map(|number| handed(number, 1, &fd)).collect();
            for part in split(head(0), vec![fd.as_fd()], listeners) {
                prop_assert!(bytes(&part) <= MAX_MESSAGE);
            }
        }
    }
}
