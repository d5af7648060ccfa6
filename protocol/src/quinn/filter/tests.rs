use super::*;
use crate::cid::{ConnectionId, MemberId};
use crate::keys::{BootId, Secret};
use crate::message::Generation;
use proptest::prelude::*;

fn cipher() -> Arc<Cipher> {
    Arc::new(Cipher::new(&[0x11; 16]))
}

fn tag(generation: u32, member: u16) -> Tag {
    Tag::new(Generation(generation), MemberId::new(member).unwrap()).unwrap()
}

fn id(tag: Tag) -> [u8; CID_LEN] {
    cipher().seal(ConnectionId::new(tag, 42).unwrap())
}

fn filter() -> Filter {
    Filter::new(cipher(), tag(10, 4), HeirSet::new())
}

fn short(tag: Tag, length: usize, fill: u8) -> Vec<u8> {
    let mut datagram = vec![fill; length];
    datagram[0] = 0x40;
    datagram[1..9].copy_from_slice(&id(tag));
    datagram
}

fn long(kind: u8, version: u32, dcid: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0xc0 | kind << 4];
    datagram.extend(version.to_be_bytes());
    datagram.push(u8::try_from(dcid.len()).unwrap());
    datagram.extend(dcid);
    datagram.resize(1_200, 0);
    datagram
}

impl Filter {
    fn is_foreign(&self, datagram: &[u8]) -> bool {
        matches!(self.whose(datagram), Whose::Foreign(_))
    }
}

const INITIAL: u8 = 0;
const ZERO_RTT: u8 = 1;
const HANDSHAKE: u8 = 2;

/// Only an established connection has a client to be told, and only short headers say that it is one.
#[test]
fn packets_of_established_connections_of_this_member_are_told_apart() {
    let datagrams = [
        short(tag(10, 4), 60, 0),
        long(HANDSHAKE, 1, &id(tag(10, 4))),
        short(tag(10, 5), 60, 0),
        short(tag(139, 4), 60, 0),
    ];
    let whose: Vec<_> = datagrams.iter().map(|datagram| filter().whose(datagram)).collect();
    let own = Whose::Own { counter: 42, id: id(tag(10, 4)) };
    assert_eq!(whose, [own, Whose::Unknown, Whose::Foreign(Generation(10)), Whose::Unknown]);
}

#[test]
fn another_member_or_generation_is_foreign_and_ours_is_not() {
    for (of, foreign) in [
        (tag(10, 4), false),
        (tag(10, 5), true),
        (tag(9, 4), true),
        (tag(11, 0), true),
        (tag(138, 63), true),
        // Not believed: too far away to be live together with us.
        (tag(139, 4), false),
        (tag(10, 64), false),
    ] {
        assert_eq!(filter().is_foreign(&short(of, 60, 0)), foreign, "{of:?}");
        assert_eq!(filter().is_foreign(&long(HANDSHAKE, 1, &id(of))), foreign, "{of:?}");
        assert_eq!(filter().is_foreign(&long(ZERO_RTT, 0xff00_001d, &id(of))), foreign, "{of:?}");
    }
}

/// A new client invents its first ID; were it dropped for looking like ours, each retransmission would be too.
#[test]
fn an_initial_is_never_foreign() {
    for of in [tag(10, 4), tag(10, 5), tag(9, 4)] {
        assert!(!filter().is_foreign(&long(INITIAL, 1, &id(of))));
    }
}

#[test]
fn ids_of_other_lengths_and_unknown_versions_are_not_foreign() {
    let other = id(tag(10, 5));
    for length in [0, 7] {
        assert!(!filter().is_foreign(&long(HANDSHAKE, 1, &other[..length])));
    }
    assert!(!filter().is_foreign(&long(HANDSHAKE, 1, &[&other[..], &[0]].concat())));
    for version in [0, 2, 0x6b33_43cf, 0x0a1a_2a3a] {
        assert!(!filter().is_foreign(&long(HANDSHAKE, version, &other)), "version {version:#x}");
    }
}

#[test]
fn a_datagram_that_ends_within_the_id_is_not_foreign() {
    let (short, long) = (short(tag(10, 5), 60, 0), long(HANDSHAKE, 1, &id(tag(10, 5))));
    for length in 0..=20 {
        assert_eq!(filter().is_foreign(&short[..length]), length >= 9, "short header of {length} bytes");
        assert_eq!(filter().is_foreign(&long[..length]), length >= 14, "long header of {length} bytes");
    }
}

#[test]
fn inherited_generations_are_ours_to_answer() {
    let filter = filter();
    assert!(filter.is_foreign(&short(tag(9, 4), 60, 0)));
    let key = Secret::from_bytes([1; 32]).reset_key(&BootId::from_bytes([1; 16]), Generation(9));
    filter.heirs.extend([(Generation(9), key)]);
    assert!(!filter.is_foreign(&short(tag(9, 4), 60, 0)));
    assert!(filter.is_foreign(&short(tag(10, 5), 60, 0)));
}

/// Stateless resets for connections that this endpoint dialed have random bytes where the ID is.
#[test]
fn of_a_million_random_ids_at_most_150_look_foreign() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let filter = Filter::new(cipher(), tag(1_000, 4), HeirSet::new());
    let foreign = (0..1_000_000)
        .filter(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut datagram = [0x40; 30];
            datagram[1..9].copy_from_slice(&random.to_be_bytes());
            filter.is_foreign(&datagram)
        })
        .count();
    // Expected: 257 generations × 64 members / 2^28 each, 61 in a million.
    assert!(foreign <= 150, "{foreign}");
}

fn sift(segments: &[Vec<u8>]) -> (Vec<Vec<u8>>, u64, u64) {
    let mut buffer = segments.concat();
    let stride = segments.first().map_or(0, Vec::len);
    buffer.extend([0xee; 100]);
    let mut meta = RecvMeta { len: buffer.len() - 100, stride, ..RecvMeta::default() };
    let mut foreign = 0;
    let came = filter().sift(&mut buffer, &mut meta, |_, _| {}, |_| foreign += 1);
    let kept = if meta.len == 0 { &[] } else { &buffer[..meta.len] };
    (kept.chunks(stride.max(1)).map(<[u8]>::to_vec).collect(), came, foreign)
}

#[test]
fn foreign_segments_are_taken_out_of_a_merged_buffer() {
    let (own, foreign) = (tag(10, 4), tag(10, 5));
    let segments = [
        short(foreign, 100, 1),
        short(own, 100, 2),
        short(foreign, 100, 3),
        short(own, 100, 4),
        // The last one of a merged buffer may be shorter.
        short(own, 40, 5),
    ];
    assert_eq!(sift(&segments), (vec![segments[1].clone(), segments[3].clone(), segments[4].clone()], 5, 2));
    assert_eq!(sift(&segments[..1]), (vec![], 1, 1));
    assert_eq!(sift(&[]), (vec![], 0, 0));

    let ours = [short(own, 100, 1), short(own, 100, 2)];
    assert_eq!(sift(&ours), (ours.to_vec(), 2, 0));
    let last_foreign = [short(own, 100, 1), short(foreign, 40, 2)];
    assert_eq!(sift(&last_foreign), (vec![last_foreign[0].clone()], 2, 1));
}

#[test]
fn a_buffer_without_a_stride_is_one_datagram() {
    let mut buffer = short(tag(10, 5), 50, 0);
    let mut meta = RecvMeta { len: 50, stride: 0, ..RecvMeta::default() };
    let mut foreign = Vec::new();
    assert_eq!(filter().sift(&mut buffer, &mut meta, |_, _| {}, |generation| foreign.push(generation.0)), 1);
    assert_eq!((meta.len, foreign), (0, vec![10]));
}

proptest! {
    /// Against the obvious model: split, filter, join.
    #[test]
    fn sifting_is_filtering_each_segment(ours in prop::collection::vec(any::<bool>(), 1..60), last in 20_usize..=100) {
        let count = ours.len();
        let segments: Vec<_> = ours.iter().enumerate().map(|(i, ours)| {
            let length = if i + 1 == count { last } else { 100 };
            let of = if *ours { tag(10, 4) } else { tag(9, 4) };
            short(of, length, u8::try_from(i).unwrap())
        }).collect();
        // A lone short segment is its own stride.
        let (kept, came, foreign) = sift(&segments);
        let expected: Vec<_> = segments.iter().zip(&ours).filter(|(_, ours)| **ours).map(|(s, _)| s.clone()).collect();
        prop_assert_eq!(kept, expected);
        prop_assert_eq!(came, count as u64);
        prop_assert_eq!(foreign, ours.iter().filter(|ours| !**ours).count() as u64);
    }
}
