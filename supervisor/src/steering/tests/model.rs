//! The program and the model say the same about every packet.

use super::super::model;
use super::*;

/// Some generations, in ranges of some members, in any order; a dead one may be active.
fn plan(rng: &mut StdRng) -> Plan {
    let mut live = Vec::new();
    let (mut member, mut position) = (rng.random_range(0..100), 0);
    let oldest = rng.random_range(1..65_000);
    for generation in oldest..oldest + rng.random_range(1..=16) {
        let members = rng.random_range(1..=20);
        live.push(range(generation, member, members, position));
        member += members + rng.random_range(0..3);
        position += members + rng.random_range(0..3);
    }
    let active = live[rng.random_range(0..live.len())];
    if rng.random_ratio(1, 8) {
        live.retain(|range| range != &active);
    }
    let canary = live.iter().copied().find(|range| range != &active && rng.random_ratio(1, 8));
    Plan::new(position + 3, live, active, canary.map(|range| (range, rng.random_range(0..=1_000)))).unwrap()
}

/// A packet that may be ours, nearly ours, or anything.
fn packet(rng: &mut StdRng, cipher: &Cipher, plan: &Plan) -> Vec<u8> {
    let mut id = match rng.random_range(0..4) {
        // Of a live member, or right beside a live range.
        0 | 1 if !plan.live().is_empty() => {
            let range = plan.live()[rng.random_range(0..plan.live().len())];
            let member = range.first().member().get() + rng.random_range(0..range.members() + 2);
            let tag = tag(range.generation().0, member.saturating_sub(1));
            cipher.seal(ConnectionId::new(tag, rng.random_range(0..1 << 36)).unwrap())
        }
        // Of a member that may exist in some other generation.
        2 => {
            let tag = tag(rng.random_range(1..65_536), rng.random_range(0..4_096));
            cipher.seal(ConnectionId::new(tag, rng.random_range(0..1 << 36)).unwrap())
        }
        _ => rng.random(),
    }
    .to_vec();
    if rng.random_ratio(1, 16) {
        id.resize(rng.random_range(0..=24), rng.random());
    }
    let mut packet = if rng.random() { short(&id) } else { long(&id) };
    match rng.random_range(0..16) {
        0 => packet.truncate(rng.random_range(0..=packet.len())),
        1 => packet.resize(rng.random_range(0..=1_500), rng.random()),
        2 => {
            let at = rng.random_range(0..packet.len());
            packet[at] = rng.random();
        }
        3 => packet = (0..rng.random_range(0..40)).map(|_| rng.random()).collect(),
        _ => {}
    }
    packet
}

fn compare(seed: u64) {
    let mut rng = StdRng::seed_from_u64(SEED ^ seed);
    let mut by_id = 0;
    for _ in 0..160 {
        let cipher = Cipher::new(&rng.random());
        let plan = plan(&mut rng);
        let program = program(&cipher, &plan);
        machine::check(program.insns()).unwrap();
        for _ in 0..400 {
            let (packet, source) = (packet(&mut rng, &cipher, &plan), either(&mut rng));
            let position = run(&program, &packet, source);
            assert_eq!(position, model::position(&cipher, &plan, &packet, source), "{plan:?} {packet:02x?} {source}");
            let known = |range: &Range| (range.position()..range.position() + range.members()).contains(&position);
            assert!(plan.live().iter().chain([&plan.active()]).any(known), "{position} is in no range of {plan:?}");
            let id = model::connection_id(&packet).map(|id| cipher.open(id).tag());
            by_id +=
                usize::from(id.is_some_and(|tag| plan.live().iter().any(|range| range.position_of(tag).is_some())));
        }
    }
    assert!((10_000..50_000).contains(&by_id), "{by_id} of 64000 went by their IDs: the packets are one-sided");
}

// 256 000 packets in all, in four tests so that they run beside each other.

#[test]
fn program_and_model_agree_1() {
    compare(1);
}

#[test]
fn program_and_model_agree_2() {
    compare(2);
}

#[test]
fn program_and_model_agree_3() {
    compare(3);
}

#[test]
fn program_and_model_agree_4() {
    compare(4);
}
