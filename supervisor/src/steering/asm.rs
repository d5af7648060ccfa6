//! The few classic-BPF instructions that steering needs, by name. The machine: two 32-bit registers A and X, sixteen
//! 32-bit slots M\[\], loads from the packet in network byte order, jumps forward only (linux/filter.h, and
//! Documentation/networking/filter.rst in the kernel's tree).

use super::interpreter::{self, CheckError};
use std::fmt;

/// One instruction, as `struct sock_filter` of linux/filter.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// What to do.
    pub code: u16,
    /// Instructions to skip when the test holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not.
    pub jump_false: u8,
    /// The operand: a value, an offset, a slot.
    pub k: u32,
}

/// A complete program. Its immediates hold key material, so `Debug` shows its size only.
#[derive(Clone, PartialEq, Eq)]
pub struct Program(Vec<Insn>);

impl Program {
    /// Its instructions; at most 4 096 (`BPF_MAXINSNS`), the last one a return.
    #[must_use]
    pub fn insns(&self) -> &[Insn] {
        &self.0
    }
}

/// For programs of another make, which a measurement or a fuzzer wants attached.
impl TryFrom<Vec<Insn>> for Program {
    type Error = CheckError;

    fn try_from(insns: Vec<Insn>) -> Result<Self, CheckError> {
        interpreter::check(&insns)?;
        Ok(Self(insns))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({} instructions)", self.0.len())
    }
}

/// A slot of M\[\].
#[derive(Clone, Copy)]
pub(super) struct Slot(pub(super) u32);

/// The right-hand side of a computation on A.
#[derive(Clone, Copy)]
pub(super) enum By {
    /// A constant.
    K(u32),
    /// The register X.
    X,
}

/// A test on A.
#[derive(Clone, Copy)]
pub(super) enum Test {
    /// A == k
    Is(u32),
    /// A >= k
    AtLeast(u32),
    /// A > k
    Above(u32),
    /// A & k != 0
    HasBits(u32),
}

/// A jump whose target is still to come. Classic BPF jumps forward only, so every jump begins as one of these.
#[must_use]
pub(super) struct Jump(usize);

/// Collects a program, one instruction per call unless it says otherwise.
#[derive(Default)]
pub(super) struct Assembler(Vec<Insn>);

impl Assembler {
    pub(super) fn finish(self) -> Program {
        Program(self.0)
    }

    /// A = length of the UDP payload
    pub(super) fn length(&mut self) {
        self.push(LD | W | LEN, 0);
    }

    /// A = one byte of the packet
    pub(super) fn byte(&mut self, offset: u32) {
        self.push(LD | B | ABS, offset);
    }

    /// A = two bytes of the packet
    pub(super) fn half(&mut self, offset: u32) {
        self.push(LD | H | ABS, offset);
    }

    /// A = two bytes of the packet, at X + offset
    pub(super) fn half_after_x(&mut self, offset: u32) {
        self.push(LD | H | IND, offset);
    }

    /// A = four bytes of the packet
    pub(super) fn word(&mut self, offset: u32) {
        self.push(LD | W | ABS, offset);
    }

    /// A = M[slot]
    pub(super) fn load(&mut self, slot: Slot) {
        self.push(LD | W | MEM, slot.0);
    }

    /// X = M[slot]
    pub(super) fn load_x(&mut self, slot: Slot) {
        self.push(LDX | W | MEM, slot.0);
    }

    /// M[slot] = A
    pub(super) fn store(&mut self, slot: Slot) {
        self.push(ST, slot.0);
    }

    /// X = A
    pub(super) fn a_to_x(&mut self) {
        self.push(MISC | TAX, 0);
    }

    /// A = X
    pub(super) fn x_to_a(&mut self) {
        self.push(MISC | TXA, 0);
    }

    /// A += by
    pub(super) fn add(&mut self, by: By) {
        self.alu(ADD, by);
    }

    /// A -= by
    pub(super) fn sub(&mut self, by: By) {
        self.alu(SUB, by);
    }

    /// A *= by
    pub(super) fn mul(&mut self, by: By) {
        self.alu(MUL, by);
    }

    /// A &= by
    pub(super) fn and(&mut self, by: By) {
        self.alu(AND, by);
    }

    /// A |= by
    pub(super) fn or(&mut self, by: By) {
        self.alu(OR, by);
    }

    /// A ^= by
    pub(super) fn xor(&mut self, by: By) {
        self.alu(XOR, by);
    }

    /// A <<= bits
    pub(super) fn shift_left(&mut self, bits: u32) {
        self.alu(LSH, By::K(bits));
    }

    /// A >>= bits
    pub(super) fn shift_right(&mut self, bits: u32) {
        self.alu(RSH, By::K(bits));
    }

    /// The program's result is A.
    pub(super) fn return_a(&mut self) {
        self.push(RET | RET_A, 0);
    }

    /// Jumps always.
    pub(super) fn jump(&mut self) -> Jump {
        self.push(JMP | JA, 0);
        Jump(self.0.len() - 1)
    }

    /// Jumps when the test holds: a skip over an unconditional jump (two instructions), because a conditional one
    /// reaches 255 instructions only, an unconditional one any.
    pub(super) fn jump_if(&mut self, test: Test) -> Jump {
        self.test(test, 0, 1);
        self.jump()
    }

    /// Jumps unless the test holds (two instructions, as [`Self::jump_if`]).
    pub(super) fn jump_unless(&mut self, test: Test) -> Jump {
        self.test(test, 1, 0);
        self.jump()
    }

    /// Skips the next `count` instructions when the test holds.
    pub(super) fn skip_if(&mut self, test: Test, count: u8) {
        self.test(test, count, 0);
    }

    /// These jumps lead to the next instruction.
    pub(super) fn land(&mut self, jumps: impl IntoIterator<Item = Jump>) {
        let here = self.0.len();
        for Jump(from) in jumps {
            // A program has at most 4 096 instructions, far below u32::MAX.
            self.0[from].k = u32::try_from(here - from - 1).unwrap_or(u32::MAX);
        }
    }

    fn alu(&mut self, operation: u16, by: By) {
        match by {
            By::K(k) => self.push(ALU | operation, k),
            By::X => self.push(ALU | operation | FROM_X, 0),
        }
    }

    fn test(&mut self, test: Test, jump_true: u8, jump_false: u8) {
        let (operation, k) = match test {
            Test::Is(k) => (JEQ, k),
            Test::AtLeast(k) => (JGE, k),
            Test::Above(k) => (JGT, k),
            Test::HasBits(k) => (JSET, k),
        };
        self.0.push(Insn { code: JMP | operation, jump_true, jump_false, k });
    }

    fn push(&mut self, code: u16, k: u32) {
        self.0.push(Insn { code, jump_true: 0, jump_false: 0, k });
    }
}

// Opcodes of linux/bpf_common.h and linux/filter.h: class | size | mode, or class | operation | source.
pub(super) const LD: u16 = 0x00;
pub(super) const LDX: u16 = 0x01;
pub(super) const ST: u16 = 0x02;
pub(super) const ALU: u16 = 0x04;
pub(super) const JMP: u16 = 0x05;
pub(super) const RET: u16 = 0x06;
pub(super) const MISC: u16 = 0x07;

pub(super) const W: u16 = 0x00;
pub(super) const H: u16 = 0x08;
pub(super) const B: u16 = 0x10;

pub(super) const IMM: u16 = 0x00;
pub(super) const ABS: u16 = 0x20;
pub(super) const IND: u16 = 0x40;
pub(super) const MEM: u16 = 0x60;
pub(super) const LEN: u16 = 0x80;

pub(super) const ADD: u16 = 0x00;
pub(super) const SUB: u16 = 0x10;
pub(super) const MUL: u16 = 0x20;
pub(super) const OR: u16 = 0x40;
pub(super) const AND: u16 = 0x50;
pub(super) const LSH: u16 = 0x60;
pub(super) const RSH: u16 = 0x70;
pub(super) const MOD: u16 = 0x90;
pub(super) const XOR: u16 = 0xa0;

pub(super) const JA: u16 = 0x00;
pub(super) const JEQ: u16 = 0x10;
pub(super) const JGT: u16 = 0x20;
pub(super) const JGE: u16 = 0x30;
pub(super) const JSET: u16 = 0x40;

pub(super) const FROM_X: u16 = 0x08;
pub(super) const RET_A: u16 = 0x10;
pub(super) const TAX: u16 = 0x00;
pub(super) const TXA: u16 = 0x80;

/// Added to an offset: counts from the IP header instead of the UDP payload (`SKF_NET_OFF`, -0x100000).
pub(super) const NETWORK: u32 = 0xfff0_0000;
