use super::*;
use proptest::prelude::*;

/// The stores of a write, in their order.
#[derive(Default)]
struct Recorded(Vec<(usize, u64)>);

impl Store for Recorded {
    fn store(&mut self, word: usize, value: u64, _is_check: bool) {
        self.0.push((word, value));
    }
}

fn stores(entry: &Entry) -> Vec<(usize, u64)> {
    let mut recorded = Recorded::default();
    entry.write(&mut recorded);
    recorded.0
}

fn entry(number: u8) -> Entry {
    Entry {
        id: [number; CID_LEN],
        client: SocketAddr::from(([10, 0, 0, number], 4_000 + u16::from(number))),
        local: Some(IpAddr::from([10, 0, 1, number])),
    }
}

fn apply(words: &mut [u64; WORDS], (word, value): (usize, u64)) {
    words[word] = value;
}

/// A kill -9 leaves the stores up to some point.
#[test]
fn at_whatever_store_a_writer_dies_the_slot_is_empty_or_whole() {
    let (old, new) = (entry(1), entry(2));
    for before in [None, Some(old)] {
        let mut words = [0; WORDS];
        before.iter().flat_map(stores).for_each(|store| apply(&mut words, store));
        assert_eq!(Entry::read(words), before);
        let stores = stores(&new);
        let mut seen = Vec::new();
        for store in &stores {
            apply(&mut words, *store);
            seen.push(Entry::read(words));
        }
        let (last, others) = seen.split_last().unwrap();
        assert_eq!(*last, Some(new));
        assert!(others.iter().all(Option::is_none), "{others:?}");
    }
}

/// Every order in which the nine stores of a write and the eight loads of a read can come about.
#[test]
fn a_reader_beside_a_writer_sees_the_old_the_new_or_nothing() {
    fn go(words: [u64; WORDS], stores: &[(usize, u64)], read: &mut Vec<u64>, seen: &mut Vec<Option<Entry>>) {
        if read.len() == WORDS {
            seen.push(Entry::read(std::array::from_fn(|word| read[word])));
            return;
        }
        read.push(words[read.len()]);
        go(words, stores, read, seen);
        read.pop();
        if let Some((first, rest)) = stores.split_first() {
            let mut words = words;
            apply(&mut words, *first);
            go(words, rest, read, seen);
        }
    }
    let (old, new) = (entry(1), entry(2));
    let mut words = [0; WORDS];
    stores(&old).into_iter().for_each(|store| apply(&mut words, store));
    let mut seen = Vec::new();
    go(words, &stores(&new), &mut Vec::new(), &mut seen);
    assert!(seen.len() > 10_000, "{} interleavings", seen.len());
    assert!(seen.iter().all(|seen| [None, Some(old), Some(new)].contains(seen)));
    assert!(seen.contains(&Some(old)) && seen.contains(&Some(new)));
}

#[test]
fn an_empty_or_cleared_slot_says_nothing() {
    assert_eq!(Entry::read([0; WORDS]), None);
    let mut words = [0; WORDS];
    stores(&entry(1)).into_iter().for_each(|store| apply(&mut words, store));
    let mut recorded = Recorded::default();
    clear(&mut recorded);
    recorded.0.into_iter().for_each(|store| apply(&mut words, store));
    assert_eq!(Entry::read(words), None);
}

/// The vector of `docs/protocol.md`.
#[test]
fn a_slot_has_the_documented_words() {
    let entry = Entry {
        id: [0x7b, 0xf1, 0x83, 0x98, 0x72, 0xc5, 0x3d, 0x1a],
        client: "192.0.2.1:50000".parse().unwrap(),
        local: Some("198.51.100.7".parse().unwrap()),
    };
    let words = entry.words();
    assert_eq!(
        words[1..],
        [0x7bf1_8398_72c5_3d1a, 0, 0xffff_c000_0201, 0x1_c350, 0, 0xffff_c633_6407, 0].map(|word: u64| word)
    );
    assert_eq!(words[0], DOCUMENTED_CHECK, "{:#x}", words[0]);
}

const DOCUMENTED_CHECK: u64 = 0xa3e2_674a_3520_e195;

fn any_entry() -> impl Strategy<Value = Entry> {
    let ip = || any::<IpAddr>();
    (any::<[u8; CID_LEN]>(), ip(), any::<u16>(), any::<u32>(), proptest::option::of(ip())).prop_map(
        |(id, ip, port, scope, local)| {
            let client = match ip {
                IpAddr::V4(_) => SocketAddr::new(ip, port),
                IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
            };
            Entry { id, client, local }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_if_it_can_be_sent_to(entry in any_entry()) {
        let mut words = [0; WORDS];
        stores(&entry).into_iter().for_each(|store| apply(&mut words, store));
        let ip = entry.client.ip();
        let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        let nobody = ip.is_unspecified() || ip.is_multicast() || broadcast || entry.client.port() == 0;
        // Written as a mapped one, an address is its IPv4 self, and has no scope.
        let canonical = match entry.client {
            SocketAddr::V6(client) => client.ip().to_ipv4_mapped().map(|ip| SocketAddr::from((ip, client.port()))),
            SocketAddr::V4(_) => None,
        };
        let read = Entry::read(words);
        match canonical {
            Some(client) => prop_assert!(read.is_none_or(|read| read.client == client)),
            None if nobody => prop_assert_eq!(read, None),
            None => prop_assert_eq!(read.map(|read| (read.id, read.client)), Some((entry.id, entry.client))),
        }
    }

    #[test]
    fn rubbish_is_no_entry(words in any::<[u64; WORDS]>()) {
        prop_assert_eq!(Entry::read(words), None);
    }

    /// Any one word from another entry, as a torn write would leave it without the order of the stores.
    #[test]
    fn a_mixture_of_two_entries_is_no_entry(one in any_entry(), other in any_entry(), word in 0..WORDS) {
        let (mut mixed, other) = (one.words(), other.words());
        prop_assume!(mixed[word] != other[word]);
        mixed[word] = other[word];
        prop_assert_eq!(Entry::read(mixed), None);
    }
}
