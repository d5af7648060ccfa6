use super::*;
use proptest::prelude::*;

fn tag(generation: u32, member: u16) -> Tag {
    Tag::new(Generation(generation), MemberId::new(member).unwrap()).unwrap()
}

/// The vector of `docs/protocol.md`.
#[test]
fn the_documented_id_holds() {
    let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(i).unwrap());
    let id = ConnectionId::new(tag(7, 300), 0x1_2345_6789).unwrap();
    let bytes = Cipher::new(&key).seal(id);
    assert_eq!(bytes, DOCUMENTED);
    assert_eq!(Cipher::new(&key).open(DOCUMENTED), id);
}

const DOCUMENTED: [u8; CID_LEN] = [0xb2, 0x91, 0x6c, 0xf0, 0xa3, 0x39, 0x39, 0xde];

#[test]
fn tags_of_consecutive_members_are_consecutive() {
    assert_eq!(tag(1, 0).get(), 4_096);
    assert_eq!(tag(7, 8).get() + 1, tag(7, 9).get());
    assert_eq!(tag(65_535, 4_095).get(), (1 << 28) - 1);
}

#[test]
fn what_does_not_fit_is_refused() {
    assert!(MemberId::new(4_095).is_some());
    assert!(MemberId::new(4_096).is_none());
    let member = MemberId::new(0).unwrap();
    assert!(Tag::new(Generation(0), member).is_none());
    assert!(Tag::new(Generation(65_535), member).is_some());
    assert!(Tag::new(Generation(65_536), member).is_none());
    assert!(ConnectionId::new(tag(1, 0), MAX_COUNTER - 1).is_some());
    assert!(ConnectionId::new(tag(1, 0), MAX_COUNTER).is_none());
}

/// Steering and the foreign-packet filter rest on it: an ID that a client invented must almost never look like ours.
#[test]
fn of_a_million_random_ids_none_is_one_of_sixteen_live_members() {
    let cipher = Cipher::new(&[0x5a; 16]);
    let live: Vec<_> = (20..24).flat_map(|generation| (0..4).map(move |member| tag(generation, member))).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let accepted = (0..1_000_000)
        .filter(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            live.contains(&cipher.open(random.to_be_bytes()).tag())
        })
        .count();
    // Expected: 16 / 2^28 a piece, 0.06 in a million.
    assert_eq!(accepted, 0);
}

proptest! {
    #[test]
    fn open_reverses_seal(key: [u8; 16], generation in 1_u32..=MAX_GENERATION, member in 0_u16..4_096, counter in 0..MAX_COUNTER) {
        let id = ConnectionId::new(tag(generation, member), counter).unwrap();
        let cipher = Cipher::new(&key);
        let opened = cipher.open(cipher.seal(id));
        prop_assert_eq!(opened, id);
        prop_assert_eq!((opened.tag().generation(), opened.tag().member().get()), (Generation(generation), member));
    }

    #[test]
    fn seal_reverses_open(key: [u8; 16], bytes: [u8; CID_LEN]) {
        let cipher = Cipher::new(&key);
        prop_assert_eq!(cipher.seal(cipher.open(bytes)), bytes);
    }

    #[test]
    fn the_high_word_shifted_is_the_tag(key: [u8; 16], bytes: [u8; CID_LEN]) {
        let cipher = Cipher::new(&key);
        let word = |i: usize| u32::from_be_bytes(bytes[i..i + 4].try_into().unwrap());
        let (mut high, mut low) = (word(0), word(4));
        for key in cipher.round_keys().iter().rev() {
            low = (high ^ low).rotate_right(3);
            high = (high ^ key).wrapping_sub(low).rotate_left(8);
        }
        prop_assert_eq!(high >> TAG_SHIFT, cipher.open(bytes).tag().get());
    }
}
