use super::*;
use crate::ledger::{Reader, create};

const AGE: Duration = Duration::from_secs(20);

fn ledger(members: usize) -> (Arc<Ledger>, Reader) {
    let file = create(members).unwrap();
    let reader = Reader::open(file.try_clone().unwrap()).unwrap();
    (Arc::new(Ledger::open(file, AGE).unwrap()), reader)
}

fn writer(ledger: &Arc<Ledger>, member: u16) -> Option<Writer> {
    ledger.writer(MemberId::new(member).unwrap())
}

fn client(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn id(counter: u64) -> [u8; CID_LEN] {
    counter.to_be_bytes()
}

/// What a reader finds: member, counter and port.
fn found(reader: &Reader) -> Vec<(u16, u64, u16)> {
    let entries = reader.pieces().flat_map(Result::unwrap);
    let mut found: Vec<_> =
        entries.map(|(member, entry)| (member.get(), u64::from_be_bytes(entry.id), entry.client.port())).collect();
    found.sort_unstable();
    found
}

#[test]
fn an_entry_is_there_from_its_first_packet_to_its_end() {
    let (ledger, reader) = ledger(2);
    let (mut one, mut other) = (writer(&ledger, 0).unwrap(), writer(&ledger, 1).unwrap());
    let now = Instant::now();
    one.saw(now, 7, id(7), client(100), None);
    one.saw(now, 7, id(7), client(100), None);
    other.saw(now, 7, id(7), client(200), None);
    assert_eq!(found(&reader), [(0, 7, 100), (1, 7, 200)]);
    one.ended(now, client(100));
    one.ended(now, client(100));
    assert_eq!(found(&reader), [(1, 7, 200)]);
    assert!(one.is_empty());
    one.saw(now, 8, id(8), client(101), None);
    assert_eq!(found(&reader), [(0, 8, 101), (1, 7, 200)], "the slot is used again");
}

#[test]
fn a_client_that_moves_is_told_where_it_is_and_forgotten_by_where_it_came_from() {
    let (ledger, reader) = ledger(1);
    let mut writer = writer(&ledger, 0).unwrap();
    let now = Instant::now();
    writer.saw(now, 1, id(1), client(100), None);
    writer.saw(now, 1, id(1), client(101), None);
    assert_eq!(found(&reader), [(0, 1, 101)]);
    writer.ended(now, client(101));
    assert_eq!(found(&reader), [(0, 1, 101)]);
    writer.ended(now, client(100));
    assert_eq!(found(&reader), []);
}

/// As `moq-tokio` dials: all its connections share one socket.
#[test]
fn connections_of_one_client_socket_each_have_an_entry() {
    let (ledger, reader) = ledger(1);
    let mut writer = writer(&ledger, 0).unwrap();
    let now = Instant::now();
    writer.saw(now, 1, id(1), client(100), None);
    writer.saw(now, 9, id(9), client(100), None);
    assert_eq!(found(&reader), [(0, 1, 100), (0, 9, 100)]);
    writer.ended(now, client(100));
    assert_eq!(found(&reader), []);
    for counter in [1, 9] {
        writer.saw(now + Duration::from_secs(2), counter, id(counter), client(100), None);
    }
    assert_eq!(found(&reader), [], "the last packets of a connection bring it back");
    let later = now + Duration::from_secs(4);
    writer.saw(later, 9, id(9), client(100), None);
    assert_eq!(found(&reader), [(0, 9, 100)], "one that goes on is back soon");
    writer.expire(later);
    writer.saw(later, 9, id(9), client(100), None);
    assert_eq!((found(&reader).len(), writer.by_counter.len()), (1, 1));
}

/// A client that dials again before it closes, or a peer with two connections: the one that goes on has to be told.
#[test]
fn the_end_of_one_connection_leaves_those_that_share_its_address() {
    let (ledger, reader) = ledger(1);
    let mut writer = writer(&ledger, 0).unwrap();
    let now = Instant::now();
    for counter in [1, 9] {
        writer.began(client(100));
        writer.saw(now, counter, id(counter), client(100), None);
    }
    writer.ended(now, client(100));
    assert_eq!(found(&reader), [(0, 1, 100), (0, 9, 100)], "nobody knows which of the two has ended");
    let later = now + Duration::from_secs(18);
    writer.saw(later, 9, id(9), client(100), None);
    for second in 0..8 {
        writer.expire(later + Duration::from_secs(second));
    }
    assert_eq!(found(&reader), [(0, 9, 100)], "for one nothing comes any more");
    writer.ended(later, client(100));
    assert_eq!((found(&reader), writer.homes.len()), (vec![], 0));
}

/// All its IDs have expired, and it is still there.
#[test]
fn an_address_of_which_nothing_comes_is_still_counted() {
    let (ledger, reader) = ledger(1);
    let mut writer = writer(&ledger, 0).unwrap();
    let begun = Instant::now();
    writer.began(client(100));
    writer.began(client(100));
    writer.saw(begun, 1, id(1), client(100), None);
    for second in 21..30 {
        writer.expire(begun + Duration::from_secs(second));
    }
    assert_eq!(found(&reader), []);
    let now = begun + Duration::from_secs(30);
    writer.saw(now, 2, id(2), client(100), None);
    writer.ended(now, client(100));
    assert_eq!(found(&reader), [(0, 2, 100)]);
    writer.ended(now, client(100));
    assert_eq!(found(&reader), []);
}

#[test]
fn what_nothing_comes_for_expires_and_the_others_stay() {
    let (ledger, reader) = ledger(1);
    let mut writer = writer(&ledger, 0).unwrap();
    let begun = Instant::now();
    for counter in 0..10 {
        writer.saw(begun, counter, id(counter), client(100), None);
    }
    for second in 1..=30 {
        let now = begun + Duration::from_secs(second);
        writer.saw(now, 3, id(3), client(100), None);
        writer.expire(now);
    }
    assert_eq!(found(&reader), [(0, 3, 100)]);
    writer.ended(begun + Duration::from_secs(30), client(100));
    assert_eq!(found(&reader), [], "it is still found by its address");
}

#[test]
fn a_full_section_records_no_more_and_says_so() {
    let (ledger, reader) = ledger(4_096);
    let mut writer = writer(&ledger, 4_095).unwrap();
    let now = Instant::now();
    for counter in 0..300 {
        writer.saw(now, counter, id(counter), client(u16::try_from(counter).unwrap() + 1), None);
    }
    assert_eq!((writer.len(), writer.unrecorded()), (256, 44));
    assert_eq!(found(&reader).len(), 256);
    writer.ended(now, client(1));
    writer.saw(now, 300, id(300), client(999), None);
    assert!(found(&reader).contains(&(4_095, 300, 999)));
}

#[test]
fn each_section_has_one_writer() {
    let (ledger, _) = ledger(2);
    let first = writer(&ledger, 1);
    assert!(first.is_some());
    assert!(writer(&ledger, 1).is_none());
    assert!(writer(&ledger, 2).is_none(), "there is no such section");
}

/// Address space is all that the unused slots take.
#[test]
fn memory_grows_with_the_clients() {
    use std::os::unix::fs::MetadataExt as _;
    let file = create(16).unwrap();
    let blocks = File::from(file.try_clone().unwrap());
    let ledger = Arc::new(Ledger::open(file, AGE).unwrap());
    let mut writer = writer(&ledger, 3).unwrap();
    assert!(blocks.metadata().unwrap().blocks() * 512 <= 8_192);
    for counter in 0..2_000 {
        writer.saw(Instant::now(), counter, id(counter), client(1), None);
    }
    assert!(blocks.metadata().unwrap().blocks() * 512 <= 256 * 1_024);
}
