//! The choice by source: even, steady, in proportion, and nobody else's.

use super::super::program::last_of_share;
use super::super::source::SourceHash;
use super::*;

/// Pearson's test. For n cells and a random spread, chi-square has a mean of n - 1 and a variance of 2 (n - 1); five
/// deviations above is at most 1 in 200 (two cells), far less for more cells, and the seed is fixed.
fn assert_even(counts: &[u32], what: &str) {
    let cells = counts.len() as f64;
    let expected = f64::from(counts.iter().sum::<u32>()) / cells;
    let chi_square: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
    let limit = (cells - 1.0) + 5.0 * (2.0 * (cells - 1.0)).sqrt();
    assert!(chi_square <= limit, "{what}: chi-square {chi_square:.1} for {cells} cells, at most {limit:.1}");
}

fn spread(members: u16, what: &str, sources: impl Iterator<Item = SocketAddr>) {
    let active = range(1, 0, members, 0);
    let program = program(&cipher(), &Plan::new(members, vec![active], active, None).unwrap());
    let mut counts = vec![0; members.into()];
    for source in sources {
        counts[usize::from(run(&program, &[], source))] += 1;
    }
    assert_even(&counts, what);
}

/// Clients come in patterns: one address and many ports, neighbouring addresses with one port, networks in steps.
#[test]
fn sources_in_patterns_are_spread_evenly() {
    let n = 12_000u32;
    for members in [2, 3, 4, 8, 12, 100, 253] {
        let port = |index: u32| u16::try_from(20_000 + index).unwrap();
        let word = 0x0a00_0000;
        spread(members, "v4 ports", (0..n).map(|index| (Ipv4Addr::from(word), port(index)).into()));
        spread(members, "v4 hosts", (0..n).map(|index| (Ipv4Addr::from(word + index), 4_443).into()));
        spread(members, "v4 networks", (0..n).map(|index| (Ipv4Addr::from(word + (index << 8)), 4_443).into()));
        let net = 0x2001_0db8u128 << 96;
        spread(members, "v6 ports", (0..n).map(|index| (Ipv6Addr::from(net | 1), port(index)).into()));
        spread(members, "v6 hosts", (0..n).map(|index| (Ipv6Addr::from(net | u128::from(index)), 4_443).into()));
        spread(members, "v6 /64s", (0..n).map(|index| (Ipv6Addr::from(net | u128::from(index) << 64), 4_443).into()));
    }
}

#[test]
fn random_sources_are_spread_evenly() {
    let (mut one, mut other) = (rng(), rng());
    spread(4, "v4", (0..50_000).map(|_| v4(&mut one)));
    spread(4, "v6", (0..50_000).map(|_| v6(&mut other)));
}

/// GRO merges what comes from one socket: all its packets without an ID of ours must meet in one member.
#[test]
fn one_client_socket_stays_on_one_member() {
    let cipher = cipher();
    let (active, canary) = (range(1, 0, 12, 0), range(2, 12, 12, 12));
    let program = program(&cipher, &Plan::new(24, vec![active, canary], active, Some((canary, 500))).unwrap());
    let mut rng = rng();
    for _ in 0..200 {
        let source = either(&mut rng);
        let position = run(&program, &[], source);
        for _ in 0..20 {
            let length = rng.random_range(0..=20);
            let id: Vec<u8> = (0..length).map(|_| rng.random()).collect();
            assert_eq!(run(&program, &long(&id), source), position);
            assert_eq!(run(&program, &short(&id), source), position);
        }
    }
}

#[test]
fn options_of_ipv4_do_not_hide_the_port() {
    let cipher = cipher();
    let active = range(1, 0, 253, 0);
    let program = program(&cipher, &Plan::new(253, vec![active], active, None).unwrap());
    let mut rng = rng();
    for _ in 0..50 {
        let source = v4(&mut rng);
        let positions: Vec<_> =
            (0..=10).map(|options| machine::run(program.insns(), &[], &network(source, options, &[]))).collect();
        assert!(positions.iter().all(|position| *position == positions[0]), "{source}: {positions:?}");
    }
}

/// A dual-stack socket shows the model `::ffff:a.b.c.d`, while the program sees IPv4.
#[test]
fn an_ipv4_source_is_the_same_in_either_form() {
    let hash = SourceHash::new(&cipher());
    let mut rng = rng();
    for _ in 0..1_000 {
        let SocketAddr::V4(source) = v4(&mut rng) else { panic!("asked for IPv4") };
        let mapped = SocketAddr::from((source.ip().to_ipv6_mapped(), source.port()));
        assert_eq!(hash.of(source.into()), hash.of(mapped));
    }
}

#[test]
fn a_share_is_exact_in_hashes() {
    for permille in 1..=1_000u16 {
        let hashes = u64::from(last_of_share(permille)) + 1;
        assert_eq!(hashes, u64::from(permille) * (1 << 32) / 1_000, "{permille} permille");
    }
}

/// By the program: the count lies within five standard deviations of the share, and a growing share loses nobody.
#[test]
fn a_canary_gets_its_share_of_the_clients() {
    let cipher = cipher();
    let (active, canary) = (range(1, 0, 4, 0), range(2, 4, 4, 4));
    let mut before: Vec<bool> = Vec::new();
    for permille in [1, 10, 50, 500, 999, 1_000] {
        let plan = Plan::new(8, vec![active, canary], active, Some((canary, permille))).unwrap();
        let program = program(&cipher, &plan);
        let mut rng = rng();
        let now: Vec<bool> = (0..20_000).map(|_| run(&program, &[], either(&mut rng)) >= 4).collect();
        let share = f64::from(permille) / 1_000.0;
        let expected = 20_000.0 * share;
        let got = now.iter().filter(|&&on_canary| on_canary).count() as f64;
        assert!((got - expected).abs() <= 5.0 * (expected * (1.0 - share)).sqrt(), "{permille} permille: {got}");
        assert!(before.iter().zip(&now).all(|(&was, &is)| is || !was), "{permille} permille: someone left the canary");
        before = now;
    }
}

/// The bits that choose the side must not choose the member too.
#[test]
fn a_canary_spreads_its_share_over_all_its_members() {
    let cipher = cipher();
    let (active, canary) = (range(1, 0, 12, 0), range(2, 12, 12, 12));
    for permille in [5, 50, 500, 950] {
        let plan = Plan::new(24, vec![active, canary], active, Some((canary, permille))).unwrap();
        let program = program(&cipher, &plan);
        let mut rng = rng();
        let mut counts = [0; 24];
        for _ in 0..50_000 {
            counts[usize::from(run(&program, &[], either(&mut rng)))] += 1;
        }
        assert_even(&counts[..12], "active");
        assert_even(&counts[12..], "canary");
    }
}

/// A client that does not know the key can't aim: under another key the same sources lie elsewhere.
#[test]
fn another_key_gives_another_spread() {
    let active = range(1, 0, 8, 0);
    let plan = Plan::new(8, vec![active], active, None).unwrap();
    let (one, other) = (program(&Cipher::new(&[1; 16]), &plan), program(&Cipher::new(&[2; 16]), &plan));
    let mut rng = rng();
    let same = (0..8_000)
        .filter(|_| {
            let source = either(&mut rng);
            run(&one, &[], source) == run(&other, &[], source)
        })
        .count();
    assert!((850..1_150).contains(&same), "{same} of 8000 alike, an eighth expected");
}

/// Differences that cancel under every key are what an attacker would look for: flipped top bits of two words above all.
#[test]
fn no_pair_of_sources_collides_under_every_key() {
    let base = 0x2001_0db8u128 << 96 | 0x1234_5678_9abc_def0;
    let flips = [1u128 << 31 | 1 << 63, 1 << 15 | 1 << 31, 1 << 31 | 1 << 15 | 1 << 63, 0xffff << 16, 1 << 47];
    let mut rng = rng();
    for flip in flips {
        let collisions = (0..2_000)
            .filter(|_| {
                let hash = SourceHash::new(&Cipher::new(&rng.random()));
                let of = |address: u128| hash.of((Ipv6Addr::from(address), 4_443).into());
                of(base) == of(base ^ flip)
            })
            .count();
        assert!(collisions <= 1, "{flip:#x}: {collisions} of 2000 keys, at most 2000 / 2¹⁷ expected");
    }
}
