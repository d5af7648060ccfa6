//! How long a program gets, and what it shows of itself.

use super::super::MAX_RANGES;
use super::*;

fn sized(ranges: usize, canary: bool) -> Program {
    let live: Vec<_> =
        (0..u16::try_from(ranges).unwrap()).map(|index| range(1 + u32::from(index), index, 1, index)).collect();
    let share = canary.then(|| (live[1], 50));
    program(&cipher(), &Plan::new(4_096, live.clone(), live[0], share).unwrap())
}

/// The kernel charges a program to the socket's option memory: 9 129 bytes for the longest here (found by lowering
/// net.core.optmem_max), of 20 480 in older kernels and 131 072 in newer ones.
#[test]
fn the_largest_program_fits_the_kernel_and_its_old_memory_limit() {
    for (ranges, canary) in [(1, false), (2, false), (3, true), (16, true), (MAX_RANGES, true)] {
        let program = sized(ranges, canary);
        let insns = program.insns().len();
        println!("{ranges} ranges, canary {canary}: {insns} instructions");
        machine::check(program.insns()).unwrap();
        assert!(insns <= 1_024, "{insns} instructions");
    }
}

#[test]
fn one_more_range_costs_five_instructions() {
    assert_eq!(sized(17, false).insns().len(), sized(16, false).insns().len() + 5);
}

/// Re-attaching is how the supervisor makes sure of its program: it must not change where anyone is.
#[test]
fn the_same_plan_gives_the_same_program() {
    assert!(sized(16, true) == sized(16, true));
}

/// The immediates are round keys.
#[test]
fn a_program_does_not_show_its_keys() {
    assert_eq!(format!("{:?}", sized(1, false)), format!("Program({} instructions)", sized(1, false).insns().len()));
}
