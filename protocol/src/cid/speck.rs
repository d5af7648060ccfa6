//! Speck64/128 (Beaulieu et al., "The SIMON and SPECK Families of Lightweight Block Ciphers", IACR ePrint 2013/404):
//! a 64-bit block, a 128-bit key, 27 rounds of add, rotate and xor.
//!
//! Chosen because classic BPF can run it: no tables, no multiplication, four instructions' worth of arithmetic a round.
//! The block is two words as the paper prints them, high word first; on the wire each is in network byte order, which
//! is what a BPF load yields.

/// Rounds of Speck64/128 (table 4.1 of the paper).
pub(super) const ROUNDS: usize = 27;

/// One 32-bit key per round.
pub(super) type RoundKeys = [u32; ROUNDS];

/// The key schedule. The key is four words as the paper prints them (`l2 l1 l0 k0`), each in network byte order.
pub(super) fn expand(key: &[u8; 16]) -> RoundKeys {
    let word = |i: usize| u32::from_be_bytes([key[4 * i], key[4 * i + 1], key[4 * i + 2], key[4 * i + 3]]);
    let mut l = [word(2), word(1), word(0)];
    let mut k = word(3);
    let mut keys = [0; ROUNDS];
    for (i, key) in (0_u32..).zip(&mut keys) {
        *key = k;
        let slot = &mut l[i as usize % 3];
        (*slot, k) = round(*slot, k, i);
    }
    keys
}

/// One block: high word in the upper half.
pub(super) fn encrypt(keys: &RoundKeys, block: u64) -> u64 {
    let (high, low) = keys.iter().fold(split(block), |(high, low), key| round(high, low, *key));
    join(high, low)
}

/// The reverse of [`encrypt`].
pub(super) fn decrypt(keys: &RoundKeys, block: u64) -> u64 {
    let (high, low) = keys.iter().rev().fold(split(block), |(high, low), key| {
        let low = (high ^ low).rotate_right(3);
        ((high ^ key).wrapping_sub(low).rotate_left(8), low)
    });
    join(high, low)
}

fn round(high: u32, low: u32, key: u32) -> (u32, u32) {
    let high = high.rotate_right(8).wrapping_add(low) ^ key;
    (high, low.rotate_left(3) ^ high)
}

#[expect(clippy::cast_possible_truncation, reason = "takes the two halves")]
fn split(block: u64) -> (u32, u32) {
    ((block >> 32) as u32, block as u32)
}

fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appendix C of the paper, Speck64/128.
    #[test]
    fn the_papers_test_vector_holds() {
        let key = [0x1b, 0x1a, 0x19, 0x18, 0x13, 0x12, 0x11, 0x10, 0x0b, 0x0a, 0x09, 0x08, 0x03, 0x02, 0x01, 0x00];
        let keys = expand(&key);
        assert_eq!(encrypt(&keys, 0x3b72_6574_7475_432d), 0x8c6f_a548_454e_028b);
        assert_eq!(decrypt(&keys, 0x8c6f_a548_454e_028b), 0x3b72_6574_7475_432d);
    }
}
