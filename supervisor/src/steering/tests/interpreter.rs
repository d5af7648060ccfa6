//! The interpreter itself: what the kernel refuses, and the traps that the program has to avoid.

use super::super::Insn;
use super::super::asm::*;
use super::super::interpreter::{CheckError, MAX_INSNS, check, run};

const fn insn(code: u16, k: u32) -> Insn {
    Insn { code, jump_true: 0, jump_false: 0, k }
}

const RETURN: Insn = insn(RET, 0);

#[test]
fn what_the_kernel_refuses_is_refused() {
    assert_eq!(check(&[]), Err(CheckError::Size(0)));
    assert!(check(&[RETURN; MAX_INSNS]).is_ok());
    assert_eq!(check(&[RETURN; MAX_INSNS + 1]), Err(CheckError::Size(MAX_INSNS + 1)));
    assert_eq!(check(&[insn(LD | W | IMM, 0)]), Err(CheckError::NoReturn));
    assert_eq!(check(&[insn(0xffff, 0), RETURN]), Err(CheckError::Unknown { at: 0, code: 0xffff }));
    assert_eq!(check(&[insn(ST, 16), RETURN]), Err(CheckError::Operand { at: 0, k: 16 }));
    assert_eq!(check(&[insn(ALU | LSH, 32), RETURN]), Err(CheckError::Operand { at: 0, k: 32 }));
    assert_eq!(check(&[insn(ALU | MOD, 0), RETURN]), Err(CheckError::Operand { at: 0, k: 0 }));
    assert_eq!(check(&[insn(JMP | JA, 1), RETURN]), Err(CheckError::Jump(0)));
    let branch = Insn { code: JMP | JEQ, jump_true: 0, jump_false: 2, k: 0 };
    assert_eq!(check(&[branch, RETURN, RETURN]), Err(CheckError::Jump(0)));
}

/// The checker follows a return into the next instruction, where nothing is written yet.
#[test]
fn a_slot_read_behind_a_return_is_refused() {
    let branch = Insn { code: JMP | JEQ, jump_true: 1, jump_false: 0, k: 0 };
    let (store, load) = (insn(ST, 3), insn(LD | W | MEM, 3));
    assert!(check(&[store, branch, RETURN, load, RETURN]).is_ok());
    assert_eq!(check(&[branch, RETURN, load, RETURN]), Err(CheckError::Unwritten(2)));
    // Written on the only way to the load, but not on the "way" through the return before it.
    let branch = Insn { code: JMP | JEQ, jump_true: 0, jump_false: 2, k: 0 };
    let program = [branch, store, insn(JMP | JA, 1), RETURN, load, RETURN];
    assert_eq!(check(&program), Err(CheckError::Unwritten(4)));
}

#[test]
fn a_load_past_the_end_returns_zero() {
    let returns_seven = |load: Insn| run(&[load, insn(RET, 7)], &[1, 2, 3, 4], &[0x45, 2, 3]);
    assert_eq!(returns_seven(insn(LD | W | ABS, 0)), 7);
    assert_eq!(returns_seven(insn(LD | W | ABS, 1)), 0);
    assert_eq!(returns_seven(insn(LD | H | ABS, 2)), 7);
    assert_eq!(returns_seven(insn(LD | H | ABS, 3)), 0);
    assert_eq!(returns_seven(insn(LD | B | ABS, 3)), 7);
    assert_eq!(returns_seven(insn(LD | B | ABS, 4)), 0);
    assert_eq!(returns_seven(insn(LD | B | ABS, NETWORK + 2)), 7);
    assert_eq!(returns_seven(insn(LD | B | ABS, NETWORK + 3)), 0);
}

#[test]
fn loads_are_big_endian_and_count_from_either_header() {
    let value = |loads: &[Insn]| run(&[loads, &[insn(RET | RET_A, 0)]].concat(), &[1, 2, 3, 4, 5], &[0x46, 9, 8, 7]);
    assert_eq!(value(&[insn(LD | W | ABS, 1)]), 0x0203_0405);
    assert_eq!(value(&[insn(LD | H | ABS, 0)]), 0x0102);
    assert_eq!(value(&[insn(LD | W | LEN, 0)]), 5);
    assert_eq!(value(&[insn(LD | H | ABS, NETWORK + 1)]), 0x0908);
    let x_is = |x| [insn(LD | W | IMM, x), insn(MISC | TAX, 0)];
    assert_eq!(value(&[&x_is(3)[..], &[insn(LD | H | IND, 0)]].concat()), 0x0405);
    assert_eq!(value(&[&x_is(2)[..], &[insn(LD | H | IND, NETWORK)]].concat()), 0x0807);
}
