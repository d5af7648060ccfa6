//! The secret of a supervisor, and what its children get of it.
//!
//! Everything is derived by HKDF-SHA256 (RFC 5869) from one 32-byte secret. What must not outlive a supervisor, or
//! must differ between generations, also depends on the boot id (as HKDF's salt): two boots with one secret never mint
//! the same connection ID, and a generation can only reset its own connections. What clients bring back later
//! (address tokens, TLS tickets) depends on the secret alone. `docs/protocol.md` has the info strings and vectors.

use crate::message::Generation;
use hkdf::Hkdf;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use std::fmt;
use std::io;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The root secret of a supervisor; children never see it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

impl Secret {
    /// From the kernel's random generator.
    ///
    /// # Errors
    ///
    /// As getrandom(2): only a kernel without it fails.
    pub fn random() -> io::Result<Self> {
        random().map(Self)
    }

    /// From a file or a saved state.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// For the state that a successor reads; nothing else may see it.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// What one generation gets.
    #[must_use]
    pub fn child_keys(&self, boot: &BootId, generation: Generation) -> ChildKeys {
        ChildKeys {
            cid: self.derive(Some(boot), b"moq-supervise v1 cid", &[]),
            reset: self.reset_key(boot, generation),
            token: self.derive(None, b"moq-supervise v1 token", &[]),
            tickets: self.derive(None, b"moq-supervise v1 tickets", &[]),
        }
    }

    /// The key of the connection IDs, for the steering program: [`ChildKeys::cid`] of every generation.
    #[must_use]
    pub fn cid_key(&self, boot: &BootId) -> [u8; 16] {
        self.derive(Some(boot), b"moq-supervise v1 cid", &[])
    }

    /// The stateless-reset key of one generation, also for its heir.
    #[must_use]
    pub fn reset_key(&self, boot: &BootId, generation: Generation) -> ResetKey {
        ResetKey(self.derive(Some(boot), b"moq-supervise v1 reset", &generation.0.to_be_bytes()))
    }

    fn derive<const N: usize>(&self, salt: Option<&BootId>, info: &[u8], context: &[u8]) -> [u8; N] {
        let mut key = [0; N];
        Hkdf::<Sha256>::new(salt.map(|boot| &boot.0[..]), &self.0)
            .expand_multi_info(&[info, context], &mut key)
            .expect("16 or 32 bytes are within HKDF's limit of 255 hashes");
        key
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Names one cold start of a supervisor; kept through self-upgrades and recoveries. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BootId([u8; 16]);

impl BootId {
    /// From the kernel's random generator.
    ///
    /// # Errors
    ///
    /// As getrandom(2): only a kernel without it fails.
    pub fn random() -> io::Result<Self> {
        random().map(Self)
    }

    /// From a saved state.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// For a state to save.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Signs the stateless resets of one generation (RFC 9000 section 10.3): the token of a connection ID is the first 16
/// bytes of HMAC-SHA256 over its 8 bytes. In the memfd of an `heir` message it is these 32 bytes alone.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct ResetKey([u8; 32]);

impl ResetKey {
    /// From the content of an `heir` memfd.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The content of an `heir` memfd.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetKey(..)")
    }
}

/// What one generation gets, in one sealed memfd beside `adopt`.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct ChildKeys {
    /// Encrypts connection IDs ([`crate::cid::Cipher`]); the same for all generations of a boot.
    pub cid: [u8; 16],
    /// Signs stateless resets; this generation's own.
    pub reset: ResetKey,
    /// Seals Retry and address validation tokens; the same for all generations, so that one honours another's.
    pub token: [u8; 32],
    /// Seals TLS session tickets; the same for all generations.
    pub tickets: [u8; 32],
}

impl ChildKeys {
    /// The length of the encoded form in bytes.
    pub const ENCODED_LEN: usize = MAGIC.len() + 16 + 3 * 32;

    /// The content of the keys memfd: the magic `moqkeys` and the format version (one byte, 1), then the ID key (16
    /// bytes), the reset key, the token key and the ticket key (32 each), without padding.
    #[must_use]
    pub fn to_bytes(&self) -> zeroize::Zeroizing<Vec<u8>> {
        let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(Self::ENCODED_LEN));
        for part in [&MAGIC[..], &self.cid, &self.reset.0, &self.token, &self.tickets] {
            bytes.extend_from_slice(part);
        }
        bytes
    }

    /// Reads the content of the keys memfd.
    ///
    /// # Errors
    ///
    /// [`InvalidKeys`] when it has another magic, version or length.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidKeys> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(InvalidKeys)?;
        let (cid, rest) = rest.split_first_chunk().ok_or(InvalidKeys)?;
        let (reset, rest) = rest.split_first_chunk().ok_or(InvalidKeys)?;
        let (token, rest) = rest.split_first_chunk().ok_or(InvalidKeys)?;
        let tickets = rest.try_into().map_err(|_| InvalidKeys)?;
        Ok(Self { cid: *cid, reset: ResetKey(*reset), token: *token, tickets })
    }
}

impl fmt::Debug for ChildKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChildKeys(..)")
    }
}

/// The keys memfd has not the content that this version of the protocol defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the keys memfd: not {} bytes that begin with \"moqkeys\" and version 1", ChildKeys::ENCODED_LEN)]
pub struct InvalidKeys;

const MAGIC: [u8; 8] = *b"moqkeys\x01";

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // Up to 256 bytes come whole and uninterrupted once the generator is seeded (getrandom(2)); before, a signal may
    // interrupt the wait.
    while let Err(error) = getrandom(&mut bytes, GetRandomFlags::empty()) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
