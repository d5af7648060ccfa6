//! Every header form, length and boundary.

use super::*;

/// Three live generations of four members, the newest of them active.
fn three() -> Plan {
    let live = vec![range(7, 0, 4, 0), range(8, 4, 4, 4), range(9, 8, 4, 8)];
    Plan::new(12, live, range(9, 8, 4, 8), None).unwrap()
}

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), 50_123);

/// Where a packet without an ID of ours goes.
fn fallback(program: &Program) -> u16 {
    let position = run(program, &[], CLIENT);
    assert!((8..12).contains(&position), "{position} is not of the active generation");
    position
}

#[test]
fn a_packet_with_an_id_goes_to_the_member_it_names() {
    let (cipher, plan) = (cipher(), three());
    let program = program(&cipher, &plan);
    for (generation, first) in [(7, 0), (8, 4), (9, 8)] {
        for member in first..first + 4 {
            let id = id(&cipher, tag(generation, member));
            assert_eq!(run(&program, &short(&id), CLIENT), member);
            assert_eq!(run(&program, &long(&id), CLIENT), member);
        }
    }
}

/// The ID must be found whatever the other bits of the first byte, which QUIC protects or greases (RFC 9287).
#[test]
fn only_the_top_bit_of_the_first_byte_matters() {
    let (cipher, plan) = (cipher(), three());
    let program = program(&cipher, &plan);
    let id = id(&cipher, tag(7, 1));
    for first in 0..=u8::MAX {
        let mut packet = if first & 0x80 == 0 { short(&id) } else { long(&id) };
        packet[0] = first;
        assert_eq!(run(&program, &packet, CLIENT), 1, "first byte {first:#04x}");
    }
}

/// The layout up to the destination ID is the same in every version (RFC 8999), version negotiation included.
#[test]
fn the_version_does_not_matter() {
    let (cipher, plan) = (cipher(), three());
    let program = program(&cipher, &plan);
    for version in [0u32, 1, 0x6b33_43cf, 0x0a1a_2a3a, u32::MAX] {
        let mut packet = long(&id(&cipher, tag(8, 5)));
        packet[1..5].copy_from_slice(&version.to_be_bytes());
        assert_eq!(run(&program, &packet, CLIENT), 5, "version {version:#x}");
    }
}

/// A load past the end would send such a packet to position 0.
#[test]
fn a_packet_too_short_for_an_id_goes_to_the_active_generation() {
    let (cipher, plan) = (cipher(), three());
    let program = program(&cipher, &plan);
    let fallback = fallback(&program);
    let id = id(&cipher, tag(7, 2));
    for length in 0..=64 {
        let mut packet = short(&id);
        packet.resize(length, 0xee);
        assert_eq!(run(&program, &packet, CLIENT), if length < 9 { fallback } else { 2 }, "short, {length} bytes");
        let mut packet = long(&id);
        packet.resize(length, 0xee);
        assert_eq!(run(&program, &packet, CLIENT), if length < 14 { fallback } else { 2 }, "long, {length} bytes");
    }
}

#[test]
fn a_destination_id_of_another_length_is_not_ours() {
    let (cipher, plan) = (cipher(), three());
    let program = program(&cipher, &plan);
    let fallback = fallback(&program);
    let ours = id(&cipher, tag(7, 3));
    for length in 0..=u8::MAX {
        // The first eight bytes are an ID of ours, if there are as many.
        let mut id = ours.to_vec();
        id.resize(length.into(), 0xee);
        let expected = if length == 8 { 3 } else { fallback };
        assert_eq!(run(&program, &long(&id), CLIENT), expected, "{length} bytes");
    }
}

#[test]
fn a_tag_beside_a_live_range_is_not_of_it() {
    let cipher = cipher();
    let live = vec![range(7, 10, 4, 0), range(9, 100, 4, 4)];
    let program = program(&cipher, &Plan::new(8, live, range(9, 100, 4, 4), None).unwrap());
    let fallback = run(&program, &[], CLIENT);
    for (generation, member) in
        [(7, 9), (7, 14), (6, 10), (8, 10), (8, 101), (9, 99), (9, 104), (9, 10), (1, 0), (65_535, 4_095)]
    {
        let id = id(&cipher, tag(generation, member));
        assert_eq!(run(&program, &short(&id), CLIENT), fallback, "generation {generation}, member {member}");
    }
    for (generation, member, position) in [(7, 10, 0), (7, 13, 3), (9, 100, 4), (9, 103, 7)] {
        let id = id(&cipher, tag(generation, member));
        assert_eq!(run(&program, &short(&id), CLIENT), position, "generation {generation}, member {member}");
    }
}

/// Numbers at the ends of their fields: an overflow in one would leak into the other.
#[test]
fn the_extreme_tags_are_steered() {
    let cipher = cipher();
    let live = vec![range(1, 0, 1, 0), range(65_535, 4_095, 1, 1), range(65_535, 0, 2, 2)];
    let program = program(&cipher, &Plan::new(4, live, range(1, 0, 1, 0), None).unwrap());
    for (generation, member, position) in [(1, 0, 0), (65_535, 4_095, 1), (65_535, 0, 2), (65_535, 1, 3)] {
        let id = id(&cipher, tag(generation, member));
        assert_eq!(run(&program, &long(&id), CLIENT), position, "generation {generation}, member {member}");
    }
}

/// The counter shares a word with the tag.
#[test]
fn the_counter_does_not_matter() {
    let (cipher, plan) = (cipher(), three());
    let program = program(&cipher, &plan);
    for bit in 0..36 {
        for counter in [1 << bit, (1 << bit) - 1, (1 << 36) - 1 - (1 << bit)] {
            let id = cipher.seal(ConnectionId::new(tag(8, 6), counter).unwrap());
            assert_eq!(run(&program, &short(&id), CLIENT), 6, "counter {counter:#x}");
        }
    }
}

#[test]
fn every_number_of_members_is_steered() {
    let cipher = cipher();
    let mut rng = rng();
    for members in 1..=253 {
        let (old, new) = (range(3, 0, members, 0), range(4, members, members, members));
        let program = program(&cipher, &Plan::new(2 * members, vec![old, new], new, None).unwrap());
        for member in 0..2 * members {
            let id = id(&cipher, tag(if member < members { 3 } else { 4 }, member));
            assert_eq!(run(&program, &short(&id), CLIENT), member, "of {members}");
        }
        for _ in 0..20 {
            let position = run(&program, &short(&rng.random::<[u8; 8]>()), either(&mut rng));
            assert!((members..2 * members).contains(&position), "{position} of {members}");
        }
    }
}

#[test]
fn every_number_of_ranges_is_steered() {
    let cipher = cipher();
    for ranges in 1..=super::super::MAX_RANGES {
        let ranges = u16::try_from(ranges).unwrap();
        let live: Vec<_> = (0..ranges).map(|index| range(20 + u32::from(index), 7 * index, 3, 3 * index)).collect();
        let active = live[live.len() / 2];
        let program = program(&cipher, &Plan::new(3 * ranges, live, active, None).unwrap());
        for index in 0..ranges {
            for member in 0..3 {
                let id = id(&cipher, tag(20 + u32::from(index), 7 * index + member));
                assert_eq!(run(&program, &short(&id), CLIENT), 3 * index + member, "of {ranges} ranges");
            }
        }
        let fallback = run(&program, &short(&[0; 8]), CLIENT);
        assert!((active.position()..active.position() + 3).contains(&fallback), "{fallback} of {ranges} ranges");
    }
}

/// After a crash: the sockets keep the packets until a successor serves them, under its own IDs at the same positions.
#[test]
fn packets_of_a_dead_active_generation_wait_in_its_sockets() {
    let cipher = cipher();
    let dead = range(8, 4, 4, 4);
    let heir = range(9, 4, 4, 4);
    let alone = program(&cipher, &Plan::new(8, vec![], dead, None).unwrap());
    let taken = program(&cipher, &Plan::new(8, vec![heir], dead, None).unwrap());
    for member in 4..8 {
        let (old, new) = (short(&id(&cipher, tag(8, member))), short(&id(&cipher, tag(9, member))));
        let waits = run(&alone, &old, CLIENT);
        assert!((4..8).contains(&waits));
        assert_eq!(run(&taken, &old, CLIENT), waits);
        assert_eq!(run(&taken, &new, CLIENT), member);
    }
}
