use super::*;

fn secret() -> Secret {
    Secret::from_bytes(std::array::from_fn(|i| u8::try_from(i).unwrap()))
}

fn boot() -> BootId {
    BootId::from_bytes(std::array::from_fn(|i| 0xa0 + u8::try_from(i).unwrap()))
}

/// The vectors of `docs/protocol.md`.
#[test]
fn the_documented_vectors_hold() {
    let keys = secret().child_keys(&boot(), Generation(7));
    assert_eq!(hex(&keys.cid), "5d1148fae359a54cc16005d0de074233");
    assert_eq!(hex(keys.reset.as_bytes()), "a59d44a033d55ff27f84da2b76438173bcdb46917e2e9099393902b1a583421f");
    assert_eq!(hex(&keys.token), "b5c1a5c11a8f8e5497b3e9744fa0d4e1b8e7c4a02b1a2270b04f806e128cc33e");
    assert_eq!(hex(&keys.tickets), "702afaa69ca08e253e0de2b94094c2c3704ea901535142246f8bd2f5c6479e6a");
}

#[test]
fn ids_and_resets_depend_on_the_boot_and_resets_on_the_generation() {
    let (one, other) = (boot(), BootId::from_bytes([0; 16]));
    let keys = |boot, generation| secret().child_keys(boot, Generation(generation));

    assert_ne!(keys(&one, 1).cid, keys(&other, 1).cid);
    assert_ne!(keys(&one, 1).reset, keys(&other, 1).reset);
    assert_ne!(keys(&one, 1).reset, keys(&one, 2).reset);
    assert_eq!(keys(&one, 1).cid, keys(&one, 2).cid);
    assert_eq!(keys(&one, 1).cid, secret().cid_key(&one));
}

/// Tokens and tickets must be honoured by another generation, and after a cold start with the same secret file.
#[test]
fn tokens_and_tickets_depend_on_the_secret_alone() {
    let one = secret().child_keys(&boot(), Generation(1));
    let other = secret().child_keys(&BootId::from_bytes([0; 16]), Generation(2));
    assert_eq!((one.token, one.tickets), (other.token, other.tickets));
    assert_ne!(one.token, one.tickets);
    assert_ne!(one.token, Secret::from_bytes([9; 32]).child_keys(&boot(), Generation(1)).token);
}

#[test]
fn the_encoded_form_reads_back_and_nothing_else_does() {
    let keys = secret().child_keys(&boot(), Generation(3));
    let bytes = keys.to_bytes();
    assert_eq!(bytes.len(), ChildKeys::ENCODED_LEN);
    assert_eq!(ChildKeys::from_bytes(&bytes).unwrap(), keys);

    let mut longer = bytes.to_vec();
    longer.push(0);
    let mut newer = bytes.to_vec();
    newer[7] = 2;
    for wrong in [&bytes[..bytes.len() - 1], &longer, &newer, b"", b"moqkeys"] {
        assert_eq!(ChildKeys::from_bytes(wrong), Err(InvalidKeys));
    }
}

#[test]
fn nothing_secret_is_shown_by_debug() {
    let keys = secret().child_keys(&boot(), Generation(1));
    let shown = format!("{:?} {:?} {:?}", secret(), keys, keys.reset);
    assert_eq!(shown, "Secret(..) ChildKeys(..) ResetKey(..)");
}

#[test]
fn random_ones_differ() {
    assert_ne!(Secret::random().unwrap().expose(), Secret::random().unwrap().expose());
    assert_ne!(BootId::random().unwrap(), BootId::random().unwrap());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
