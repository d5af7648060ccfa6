//! The hash of a packet's source address and port, for the program and for the model.
//!
//! It has to spread clients evenly, keep one client socket on one member, and not let a client choose its member. So
//! the address, in halves of 16 bits, and the port are each multiplied by a secret 32-bit number and summed mod 2³². For
//! two different sources, chosen without knowing the numbers, the sums are equal with a probability of at most 2⁻¹⁷:
//! the product of a difference d (|d| < 2¹⁶) takes 2³² / gcd(d, 2³²) ≥ 2¹⁷ values alike. Whole 32-bit words would not do:
//! a difference of 2³¹ stays 2³¹ under every odd factor, so that two flipped top bits would always cancel. The mixer
//! behind it is a bijection: it makes every bit of the result depend on all of the sum and adds no collision.

use super::asm::{Assembler, By, NETWORK, Slot, Test};
use protocol::cid::{CID_LEN, Cipher, TAG_SHIFT};
use std::net::{IpAddr, SocketAddr};

/// The secret numbers.
pub(super) struct SourceHash {
    start: u32,
    /// For the upper and lower half of each word of the address; IPv4 uses the first.
    address: [[u32; 2]; 4],
    port: u32,
}

impl SourceHash {
    /// The same cipher gives the same hash, so a client stays where it is when the program is replaced.
    pub(super) fn new(cipher: &Cipher) -> Self {
        let [start, port] = secret_pair(cipher, 0);
        Self { start, address: [1, 2, 3, 4].map(|index| secret_pair(cipher, index)), port }
    }

    /// The hash of a source.
    pub(super) fn of(&self, source: SocketAddr) -> u32 {
        // A dual-stack socket shows an IPv4 source as an IPv6 one; on the wire it is IPv4.
        let halves = match source.ip().to_canonical() {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                vec![u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
            }
            IpAddr::V6(ip) => ip.segments().to_vec(),
        };
        let mut sum = self.start.wrapping_add(u32::from(source.port()).wrapping_mul(self.port));
        for (half, factor) in halves.into_iter().zip(self.address.as_flattened()) {
            sum = sum.wrapping_add(u32::from(half).wrapping_mul(*factor));
        }
        mix(sum)
    }

    /// A = hash of the source of this packet
    pub(super) fn assemble(&self, asm: &mut Assembler) {
        // The version in the IP header decides: a dual-stack socket gets both.
        asm.byte(NETWORK);
        asm.store(FIRST_BYTE);
        asm.shift_right(4);
        let v6 = asm.jump_unless(Test::Is(4));

        // IPv4: the port behind a header of 4 × IHL bytes (it may have options), and the source address. X is set by
        // hand, since each load from the IP header is a call in the kernel.
        asm.load(FIRST_BYTE);
        asm.and(By::K(0x0f));
        asm.shift_left(2);
        asm.a_to_x();
        asm.half_after_x(NETWORK);
        self.begin_with_port(asm);
        asm.word(NETWORK + 12);
        add_word(asm, self.address[0]);
        let mixed = asm.jump();

        // IPv6: the port behind the fixed header, and the source address. Behind an extension header these two bytes
        // are not the port, but still the same for every packet of one client socket.
        asm.land([v6]);
        asm.half(NETWORK + 40);
        self.begin_with_port(asm);
        for (offset, factors) in (8..24).step_by(4).zip(self.address) {
            asm.word(NETWORK + offset);
            add_word(asm, factors);
        }

        asm.land([mixed]);
        assemble_mix(asm);
    }

    /// SUM = start + A × port
    fn begin_with_port(&self, asm: &mut Assembler) {
        asm.mul(By::K(self.port));
        asm.add(By::K(self.start));
        asm.store(SUM);
    }
}

/// 64 bits that only the cipher's key tells: what it decrypts a constant to.
fn secret_pair(cipher: &Cipher, index: u8) -> [u32; 2] {
    let block = cipher.open([index; CID_LEN]);
    let counter = block.counter();
    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves")]
    [block.tag().get() << TAG_SHIFT | (counter >> 32) as u32, counter as u32]
}

/// A = SUM += upper half of A × the first factor + lower half of A × the second
fn add_word(asm: &mut Assembler, [upper, lower]: [u32; 2]) {
    asm.store(WORD);
    asm.shift_right(16);
    asm.mul(By::K(upper));
    asm.load_x(SUM);
    asm.add(By::X);
    asm.store(SUM);
    asm.load(WORD);
    asm.and(By::K(0xffff));
    asm.mul(By::K(lower));
    asm.load_x(SUM);
    asm.add(By::X);
    asm.store(SUM);
}

/// The finalizer of MurmurHash3 (fmix32, public domain).
fn mix(mut value: u32) -> u32 {
    for (shift, factor) in MIX {
        value = (value ^ value >> shift).wrapping_mul(factor);
    }
    value ^ value >> LAST_SHIFT
}

/// A = mix(A)
fn assemble_mix(asm: &mut Assembler) {
    for (shift, factor) in MIX {
        xor_shifted(asm, shift);
        asm.mul(By::K(factor));
    }
    xor_shifted(asm, LAST_SHIFT);
}

/// A ^= A >> bits
fn xor_shifted(asm: &mut Assembler, bits: u32) {
    asm.a_to_x();
    asm.shift_right(bits);
    asm.xor(By::X);
}

const MIX: [(u32, u32); 2] = [(16, 0x85eb_ca6b), (13, 0xc2b2_ae35)];
const LAST_SHIFT: u32 = 16;

const SUM: Slot = Slot(0);
const WORD: Slot = Slot(1);
const FIRST_BYTE: Slot = Slot(2);
