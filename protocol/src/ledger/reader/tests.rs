use super::*;
use crate::ledger::create;
use proptest::prelude::*;

fn read(file: &File) -> Vec<(MemberId, Entry)> {
    let reader = Reader::open(file.try_clone().unwrap().into()).unwrap();
    reader.pieces().flat_map(Result::unwrap).collect()
}

#[test]
fn a_new_ledger_has_no_entries() {
    assert_eq!(read(&File::from(create(3).unwrap())), []);
    assert_eq!(read(&File::from(create(0).unwrap())), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What a hostile child can do: write anything anywhere but change the size.
    #[test]
    fn whatever_is_written_into_it_reading_ends_and_invents_nobody(
        writes in proptest::collection::vec((0u64..300_000, any::<[u8; 24]>()), 0..40),
        used in any::<[u64; 2]>(),
    ) {
        let file = File::from(create(2).unwrap());
        let shape = Shape::read(&file).unwrap();
        for (member, used) in (0..).zip(used) {
            file.write_all_at(&used.to_le_bytes(), shape.section(member)).unwrap();
        }
        for (at, bytes) in writes {
            file.write_all_at(&bytes, at).unwrap();
        }
        if let Ok(reader) = Reader::open(file.try_clone().unwrap().into()) {
            let entries: Vec<_> = reader.pieces().flat_map(Result::unwrap).collect();
            prop_assert_eq!(entries, vec![]);
        }
    }
}
