//! The ledger of one member, written as its packets come.

use crate::cid::CID_LEN;
use crate::ledger::Writer;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Who has to be told if this process dies, of the clients of one member.
#[derive(Debug)]
pub struct MemberLedger {
    writer: Mutex<Writer>,
    minted: Arc<AtomicU64>,
}

impl MemberLedger {
    pub(super) fn new(writer: Writer, minted: Arc<AtomicU64>) -> Self {
        Self { writer: Mutex::new(writer), minted }
    }

    /// A connection has been accepted from this address. Its client is taken out of the ledger when what this returns is
    /// dropped, unless others from the same address have not ended; without it, it stays until nothing has come for the
    /// idle timeout. To be called before the handshake is awaited.
    #[must_use]
    pub fn recorded(self: &Arc<Self>, accepted_from: SocketAddr) -> Recorded {
        self.writer().began(accepted_from);
        Recorded { ledger: Arc::clone(self), accepted_from }
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writer().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writer().is_empty()
    }

    /// How many packets came whose client could not be recorded, because there was no room.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.writer().unrecorded()
    }

    /// For the packets that have come now.
    pub(super) fn page(&self, now: Instant) -> Page<'_> {
        let mut writer = self.writer();
        writer.expire(now);
        Page { writer, now, minted: self.minted.load(Ordering::Relaxed) }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, until it has ended.
#[derive(Debug)]
pub struct Recorded {
    ledger: Arc<MemberLedger>,
    accepted_from: SocketAddr,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.ledger.writer().ended(Instant::now(), self.accepted_from);
    }
}

/// The ledger, held for one batch of packets.
pub(super) struct Page<'a> {
    writer: MutexGuard<'a, Writer>,
    now: Instant,
    minted: u64,
}

impl Page<'_> {
    /// A packet has come with an ID of this member's. One that was never minted is an accident or an attempt.
    pub(super) fn saw(&mut self, counter: u64, id: [u8; CID_LEN], client: SocketAddr, local: Option<IpAddr>) {
        if counter < self.minted {
            self.writer.saw(self.now, counter, id, client, local);
        }
    }
}
