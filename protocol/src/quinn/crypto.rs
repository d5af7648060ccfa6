//! The keys that quinn needs, such that one generation honours what another gave out and resets only what is its own to
//! reset. Built on the crates of the key derivation rather than on quinn's own back end, whose types depend on which
//! features the rest of a program turns on.

use crate::cid::{CID_LEN, Cipher, HeirSet, Tag};
use crate::keys::ResetKey;
use aes_gcm::aead::{Aead, AeadInPlace, Payload};
use aes_gcm::{Aes256Gcm, KeyInit as _};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use quinn_proto::crypto::{AeadKey, CryptoError, HandshakeTokenKey, HmacKey};
use sha2::Sha256;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Signs stateless resets: those of dead generations that this process is heir to with their keys, those of what its own
/// member has minted with its own. For any other ID it gives what is nobody's token: quinn also signs where it has not asked whether
/// the ID is ours.
pub(super) struct ResetSigner {
    pub(super) cipher: Arc<Cipher>,
    pub(super) tag: Tag,
    /// How many IDs the member has minted.
    pub(super) minted: Arc<AtomicU64>,
    pub(super) own: ResetKey,
    pub(super) heirs: HeirSet,
}

impl ResetSigner {
    fn mac(&self, id: &[u8]) -> Hmac<Sha256> {
        let said = <[u8; CID_LEN]>::try_from(id).ok().map(|bytes| self.cipher.open(bytes));
        let inherited = said.and_then(|said| self.heirs.get(said.tag().generation()));
        let minted = self.minted.load(Ordering::Relaxed);
        let ours = said.is_some_and(|said| said.tag() == self.tag && said.counter() < minted);
        let mut mac = keyed(inherited.as_ref().unwrap_or(&self.own));
        if inherited.is_none() && !ours {
            // No token is made of as many bytes.
            mac.update(b"nobody's");
        }
        mac.update(id);
        mac
    }
}

/// The token that a client of a dead generation knows with this ID.
pub(super) fn token(key: &ResetKey, id: [u8; CID_LEN]) -> [u8; TOKEN_LEN] {
    let mut mac = keyed(key);
    mac.update(&id);
    let signature: [u8; 32] = mac.finalize().into_bytes().into();
    std::array::from_fn(|byte| signature[byte])
}

/// The length of a stateless reset token (RFC 9000 section 10.3).
pub(super) const TOKEN_LEN: usize = 16;

fn keyed(key: &ResetKey) -> Hmac<Sha256> {
    <Hmac<Sha256>>::new_from_slice(key.as_bytes()).expect("HMAC takes a key of any length")
}

impl HmacKey for ResetSigner {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.copy_from_slice(&self.mac(data).finalize().into_bytes());
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        self.mac(data).verify_slice(signature).map_err(|_| CryptoError)
    }
}

/// How long one key seals address tokens. One more period it still opens them, so that a token lives for at least this
/// long: quinn's default lifetime of the longest-lived kind (NEW_TOKEN).
const EPOCH: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Seals Retry and NEW_TOKEN tokens (RFC 9000 section 8.1) for all generations alike.
pub(super) struct TokenKey(Zeroizing<[u8; 32]>);

impl TokenKey {
    pub(super) const fn new(key: Zeroizing<[u8; 32]>) -> Self {
        Self(key)
    }

    fn at(&self, epoch: u64, random: &[u8]) -> TokenAead {
        let cipher = |epoch: u64| {
            let mut key = Zeroizing::new([0; 32]);
            Hkdf::<Sha256>::new(None, &self.0[..])
                .expand_multi_info(&[b"moq-supervise v1 token epoch", &epoch.to_be_bytes(), random], &mut key[..])
                .expect("32 bytes are within HKDF's limit of 255 hashes");
            Aes256Gcm::new(&(*key).into())
        };
        TokenAead { now: cipher(epoch), before: cipher(epoch.saturating_sub(1)) }
    }
}

impl HandshakeTokenKey for TokenKey {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Box::new(self.at(since.as_secs() / EPOCH.as_secs(), random_bytes))
    }
}

struct TokenAead {
    now: Aes256Gcm,
    before: Aes256Gcm,
}

/// Each token has its own key, derived from its random part, so that one fixed nonce never repeats under a key.
const NONCE: [u8; 12] = [0; 12];

impl AeadKey for TokenAead {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        self.now.encrypt_in_place(&NONCE.into(), additional_data, data).map_err(|_| CryptoError)
    }

    fn open<'a>(&self, data: &'a mut [u8], additional_data: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let sealed = || Payload { msg: data, aad: additional_data };
        let plain = self
            .now
            .decrypt(&NONCE.into(), sealed())
            .or_else(|_| self.before.decrypt(&NONCE.into(), sealed()))
            .map_err(|_| CryptoError)?;
        let place = data.get_mut(..plain.len()).ok_or(CryptoError)?;
        place.copy_from_slice(&plain);
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::{ConnectionId, MemberId};
    use crate::keys::{BootId, Secret};
    use crate::message::Generation;

    fn id(cipher: &Cipher, generation: u32) -> [u8; CID_LEN] {
        let tag = Tag::new(Generation(generation), MemberId::new(0).unwrap()).unwrap();
        cipher.seal(ConnectionId::new(tag, 0).unwrap())
    }

    /// The vector of `docs/protocol.md`, signed by generation 7 itself and by its heir.
    #[test]
    fn an_heir_signs_the_reset_of_the_dead_generation_as_it_would_have() {
        let secret = Secret::from_bytes(std::array::from_fn(|i| u8::try_from(i).unwrap()));
        let boot = BootId::from_bytes(std::array::from_fn(|i| 0xa0 + u8::try_from(i).unwrap()));
        let cipher = Arc::new(Cipher::new(&secret.cid_key(&boot)));
        let tag = |generation, member| Tag::new(Generation(generation), MemberId::new(member).unwrap()).unwrap();
        let signer = |generation| ResetSigner {
            cipher: Arc::clone(&cipher),
            tag: tag(generation, 0),
            minted: Arc::new(AtomicU64::new(1)),
            own: secret.reset_key(&boot, Generation(generation)),
            heirs: HeirSet::new(),
        };
        let token = |signer: &ResetSigner| {
            let mut signature = [0; 32];
            signer.sign(&id(&cipher, 7), &mut signature);
            assert!(signer.verify(&id(&cipher, 7), &signature).is_ok());
            <[u8; 16]>::try_from(&signature[..16]).unwrap()
        };
        let documented =
            [0x89, 0xa7, 0x58, 0x8c, 0x19, 0xa0, 0xf5, 0xd3, 0xc3, 0xed, 0x5e, 0x02, 0x24, 0x9f, 0x44, 0x41];
        assert_eq!(token(&signer(7)), documented);

        let heir = signer(8);
        assert_ne!(token(&heir), documented, "a generation that is not its heir can't reset its connections");
        heir.heirs.extend([(Generation(7), secret.reset_key(&boot, Generation(7)))]);
        assert_eq!(token(&heir), documented);
        assert_eq!(super::token(&secret.reset_key(&boot, Generation(7)), id(&cipher, 7)), documented);
        let neighbour = ResetSigner { tag: tag(7, 1), ..signer(7) };
        assert_ne!(token(&neighbour), documented, "one member can't reset the connections of another");
        let younger = ResetSigner { minted: Arc::default(), ..signer(7) };
        assert_ne!(token(&younger), documented, "nor any that are to come");
    }

    fn seal(key: &TokenKey, epoch: u64) -> Vec<u8> {
        let mut data = b"address".to_vec();
        key.at(epoch, b"random").seal(&mut data, b"ad").unwrap();
        data
    }

    #[test]
    fn a_token_opens_in_its_epoch_and_the_next_only() {
        let key = TokenKey::new(Zeroizing::new([3; 32]));
        let token = seal(&key, 100);
        for (epoch, opens) in [(99, false), (100, true), (101, true), (102, false)] {
            let mut copy = token.clone();
            let opened = key.at(epoch, b"random").open(&mut copy, b"ad").map(|plain| plain.to_vec());
            assert_eq!(opened.ok().as_deref(), opens.then_some(&b"address"[..]), "in epoch {epoch}");
        }
    }

    #[test]
    fn a_token_of_another_key_random_part_or_context_does_not_open() {
        let (key, other) = (TokenKey::new(Zeroizing::new([3; 32])), TokenKey::new(Zeroizing::new([4; 32])));
        let mut token = seal(&key, 7);
        assert!(other.at(7, b"random").open(&mut token, b"ad").is_err());
        assert!(key.at(7, b"r").open(&mut token, b"ad").is_err());
        assert!(key.at(7, b"random").open(&mut token, b"").is_err());
        assert!(key.at(7, b"random").open(&mut [], b"ad").is_err());
        assert!(key.at(7, b"random").open(&mut token, b"ad").is_ok(), "a failed try leaves the token as it was");
    }
}
