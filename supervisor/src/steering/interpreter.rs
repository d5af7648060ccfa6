//! Classic BPF as the kernel understands it, as far as steering programs go: [`check`] refuses what the kernel refuses,
//! [`run`] does what it does. For tests and fuzzing, which thereby need no socket.

use super::asm::{
    ABS, ADD, ALU, AND, B, FROM_X, H, IMM, IND, Insn, JA, JEQ, JGE, JGT, JMP, JSET, LD, LDX, LEN, LSH, MEM, MISC, MOD,
    MUL, NETWORK, OR, RET, RET_A, RSH, ST, SUB, TAX, TXA, W, XOR,
};

/// The longest program that the kernel takes (`BPF_MAXINSNS`).
pub const MAX_INSNS: usize = 4_096;

/// Why the kernel would refuse a program (bpf_check_classic and check_load_and_stores in net/core/filter.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// Empty or longer than [`MAX_INSNS`].
    #[error("{0} instructions")]
    Size(usize),
    /// An instruction that does not exist, or that this interpreter has no need of.
    #[error("unknown instruction {code:#06x} at {at}")]
    Unknown {
        /// Where.
        at: usize,
        /// Which.
        code: u16,
    },
    /// A shift by 32 or more, a division by 0, or a slot beyond the sixteenth.
    #[error("operand {k} out of range at {at}")]
    Operand {
        /// Where.
        at: usize,
        /// Which.
        k: u32,
    },
    /// A jump beyond the end.
    #[error("jump beyond the end at {0}")]
    Jump(usize),
    /// A slot read that was not written on every path, where a return counts as passed.
    #[error("slot read before it is written at {0}")]
    Unwritten(usize),
    /// The last instruction is not a return.
    #[error("no return at the end")]
    NoReturn,
}

/// Checks a program as the kernel does when it is attached.
///
/// # Errors
/// What the kernel would answer with EINVAL.
pub fn check(program: &[Insn]) -> Result<(), CheckError> {
    if program.is_empty() || program.len() > MAX_INSNS {
        return Err(CheckError::Size(program.len()));
    }
    for (at, insn) in program.iter().enumerate() {
        check_insn(at, insn)?;
        for skip in skips(insn) {
            if at + 1 + skip >= program.len() {
                return Err(CheckError::Jump(at));
            }
        }
    }
    check_slots(program)?;
    if program.last().is_some_and(|insn| insn.code & CLASS == RET) { Ok(()) } else { Err(CheckError::NoReturn) }
}

fn check_insn(at: usize, insn: &Insn) -> Result<(), CheckError> {
    let valid = match insn.code {
        code if code == LD | W | MEM || code == LDX | W | MEM || code == ST => (insn.k as usize) < SLOTS,
        code if code == ALU | LSH || code == ALU | RSH => insn.k < 32,
        code if code == ALU | MOD => insn.k != 0,
        code if KNOWN.contains(&code) => true,
        code => return Err(CheckError::Unknown { at, code }),
    };
    if valid { Ok(()) } else { Err(CheckError::Operand { at, k: insn.k }) }
}

/// How far an instruction may jump, beyond the next one.
fn skips(insn: &Insn) -> Vec<usize> {
    match insn.code {
        code if code & CLASS != JMP => Vec::new(),
        code if code == JMP | JA => vec![insn.k as usize],
        _ => vec![insn.jump_true.into(), insn.jump_false.into()],
    }
}

fn check_slots(program: &[Insn]) -> Result<(), CheckError> {
    // Per instruction, the slots that are written on every jump to it.
    let mut at_target = vec![u16::MAX; program.len()];
    let mut written = 0;
    for (at, insn) in program.iter().enumerate() {
        written &= at_target[at];
        match insn.code {
            ST => written |= 1 << insn.k,
            code if (code == LD | W | MEM || code == LDX | W | MEM) && written & 1 << insn.k == 0 => {
                return Err(CheckError::Unwritten(at));
            }
            code if code & CLASS == JMP => {
                for skip in skips(insn) {
                    at_target[at + 1 + skip] &= written;
                }
                written = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs a program that [`check`] accepts on a packet, of which the program sees the UDP payload and, at `NETWORK`
/// offsets, everything from the IP header on. The result is what the kernel takes as a position.
#[must_use]
pub fn run(program: &[Insn], payload: &[u8], network: &[u8]) -> u32 {
    let (mut a, mut x, mut slots) = (0u32, 0u32, [0u32; SLOTS]);
    let mut rest = program.iter();
    while let Some(&Insn { code, jump_true, jump_false, k }) = rest.next() {
        let load = |offset: u32, size: usize| load(payload, network, offset, size);
        match code & CLASS {
            LD | LDX => {
                let value = match code & MODE {
                    IMM => Some(k),
                    LEN => u32::try_from(payload.len()).ok(),
                    MEM => slots.get(k as usize).copied(),
                    ABS => load(k, size(code)),
                    IND => load(k.wrapping_add(x), size(code)),
                    _ => None,
                };
                // A load past the end ends the program with 0.
                let Some(value) = value else { return 0 };
                if code & CLASS == LD { a = value } else { x = value }
            }
            ST => slots[k as usize % SLOTS] = a,
            ALU => a = alu(code & OPERATION, a, if code & FROM_X == 0 { k } else { x }),
            JMP => {
                let skip = match code & OPERATION {
                    JA => k as usize,
                    operation => usize::from(if holds(operation, a, k) { jump_true } else { jump_false }),
                };
                // nth(n) consumes n + 1 instructions.
                if let Some(last) = skip.checked_sub(1) {
                    rest.nth(last);
                }
            }
            RET => return if code & RET_A == 0 { k } else { a },
            _ => {
                if code & TXA == 0 {
                    x = a;
                } else {
                    a = x;
                }
            }
        }
    }
    0
}

/// Big-endian, as `skb_header_pointer` finds it: at a negative offset below `SKF_LL_OFF` from the IP header.
fn load(payload: &[u8], network: &[u8], offset: u32, size: usize) -> Option<u32> {
    let (bytes, offset) = if offset >= NETWORK { (network, offset - NETWORK) } else { (payload, offset) };
    let bytes = bytes.get(offset as usize..)?.get(..size)?;
    Some(bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
}

fn size(code: u16) -> usize {
    match code & SIZE {
        B => 1,
        H => 2,
        _ => 4,
    }
}

fn alu(operation: u16, a: u32, by: u32) -> u32 {
    match operation {
        ADD => a.wrapping_add(by),
        SUB => a.wrapping_sub(by),
        MUL => a.wrapping_mul(by),
        OR => a | by,
        AND => a & by,
        LSH => a << (by & 31),
        RSH => a >> (by & 31),
        MOD => a % by.max(1),
        _ => a ^ by,
    }
}

fn holds(operation: u16, a: u32, k: u32) -> bool {
    match operation {
        JEQ => a == k,
        JGT => a > k,
        JGE => a >= k,
        _ => a & k != 0,
    }
}

const SLOTS: usize = 16;
const CLASS: u16 = 0x07;
const SIZE: u16 = 0x18;
const MODE: u16 = 0xe0;
const OPERATION: u16 = 0xf0;

/// What the assembler emits, but for those with an operand to check.
const KNOWN: [u16; 31] = [
    LD | W | IMM,
    LD | W | LEN,
    LD | W | ABS,
    LD | H | ABS,
    LD | B | ABS,
    LD | W | IND,
    LD | H | IND,
    LD | B | IND,
    ALU | ADD,
    ALU | SUB,
    ALU | MUL,
    ALU | OR,
    ALU | AND,
    ALU | XOR,
    ALU | ADD | FROM_X,
    ALU | SUB | FROM_X,
    ALU | MUL | FROM_X,
    ALU | OR | FROM_X,
    ALU | AND | FROM_X,
    ALU | XOR | FROM_X,
    ALU | LSH | FROM_X,
    ALU | RSH | FROM_X,
    JMP | JA,
    JMP | JEQ,
    JMP | JGT,
    JMP | JGE,
    JMP | JSET,
    RET,
    RET | RET_A,
    MISC | TAX,
    MISC | TXA,
];
