//! Session tickets that every process with the same secret can open: a session begun with one generation is resumed with
//! the next.
//!
//! A ticket is its epoch (8 bytes, big-endian), a random nonce (12 bytes) and the sealed state (AES-256-GCM, the epoch
//! authenticated beside it). An epoch is six hours of the wall clock; its key is derived from the secret, so no process
//! tells another about rotation.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use hkdf::Hkdf;
use rustls::server::ProducesTickets;
use sha2::Sha256;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Seconds of one key. A ticket is opened in its own epoch and the one after, so each is good for this long at least.
const EPOCH: u32 = 6 * 3_600;

const EPOCH_LEN: usize = 8;

/// Seals and opens tickets.
pub(super) struct Tickets {
    secret: Zeroizing<[u8; 32]>,
    clock: fn() -> SystemTime,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

impl Tickets {
    /// With the key from the supervisor (`ChildKeys::tickets`), or a random one in a relay that runs alone.
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self { secret: Zeroizing::new(*secret), clock: SystemTime::now }
    }

    fn epoch(&self) -> u64 {
        (self.clock)().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / u64::from(EPOCH)
    }

    fn key(&self, epoch: [u8; EPOCH_LEN]) -> Option<LessSafeKey> {
        let mut key = Zeroizing::new([0; 32]);
        let info: [&[u8]; 2] = [b"moq-relay v1 session tickets", &epoch];
        Hkdf::<Sha256>::new(None, self.secret.as_slice()).expand_multi_info(&info, key.as_mut_slice()).ok()?;
        Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_slice()).ok()?))
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        EPOCH
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let epoch = self.epoch().to_be_bytes();
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        self.key(epoch)?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(epoch), &mut sealed)
            .ok()?;
        Some([&epoch[..], &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (epoch, rest) = ticket.split_first_chunk::<EPOCH_LEN>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        // One ahead, too: the clock may have been set back by a little since.
        let now = self.epoch();
        if !(now.saturating_sub(1)..=now.saturating_add(1)).contains(&u64::from_be_bytes(*epoch)) {
            return None;
        }
        let mut sealed = sealed.to_vec();
        let opened = self
            .key(*epoch)?
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(*epoch), &mut sealed)
            .ok()?
            .len();
        sealed.truncate(opened);
        Some(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOUR: u64 = 3_600;

    fn at(secret: u8, clock: fn() -> SystemTime) -> Tickets {
        Tickets { clock, ..Tickets::new(&[secret; 32]) }
    }

    fn start() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000 * 6 * HOUR)
    }

    #[test]
    fn another_process_opens_a_ticket_in_its_epoch_and_the_next_and_no_later() {
        let ticket = at(1, start).encrypt(b"state").unwrap();
        let clocks: [(fn() -> SystemTime, bool); 5] = [
            (start, true),
            (|| start() + Duration::from_secs(6 * HOUR), true),
            (|| start() + Duration::from_secs(12 * HOUR - 1), true),
            (|| start() + Duration::from_secs(12 * HOUR), false),
            (|| start() - Duration::from_secs(6 * HOUR + 1), false),
        ];
        for (clock, opens) in clocks {
            assert_eq!(at(1, clock).decrypt(&ticket).is_some_and(|plain| plain == b"state"), opens, "{:?}", clock());
        }
    }

    #[test]
    fn a_small_step_back_of_the_clock_closes_no_ticket() {
        let ticket = at(1, start).encrypt(b"state").unwrap();
        assert!(at(1, || start() - Duration::from_secs(1)).decrypt(&ticket).is_some());
    }

    #[test]
    fn another_secret_opens_nothing() {
        let ticket = at(1, start).encrypt(b"state").unwrap();
        assert!(at(2, start).decrypt(&ticket).is_none());
    }

    #[test]
    fn a_changed_or_cut_ticket_is_refused() {
        let tickets = at(1, start);
        let ticket = tickets.encrypt(b"state").unwrap();
        for index in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[index] ^= 1;
            assert!(tickets.decrypt(&changed).is_none(), "byte {index}");
            assert!(tickets.decrypt(&ticket[..index]).is_none(), "{index} bytes");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", at(7, start)), "Tickets { .. }");
    }
}
