use super::{quic, wanted};
use crate::sockets::request::{Address, Request, What};
use proptest::prelude::*;
use protocol::message::{Kind, Wanted};
use std::path::PathBuf;

fn parse(wanted: Wanted) -> Result<Request, String> {
    match Request::parse_all(&[wanted]) {
        Ok(mut requests) => Ok(requests.remove(0)),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn what_can_be_had_becomes_an_address() {
    let v6 = parse(quic("[::]:443", 253)).expect("fine").what;
    assert_eq!(v6, What::Quic { address: "[::]:443".parse().expect("an address"), members: 253 });
    let mapped = parse(wanted("web", Kind::Tcp, "[::ffff:192.0.2.1]:80")).expect("fine").what;
    assert_eq!(mapped, What::Tcp { address: "192.0.2.1:80".parse().expect("an address") });
    let unix = parse(wanted("a-b_c.9", Kind::Unix, "/run/x")).expect("fine").what;
    assert_eq!(unix, What::Unix { path: PathBuf::from("/run/x"), mode: 0o600 });
    let longest = format!("/{}", "x".repeat(106));
    assert!(parse(wanted("u", Kind::Unix, &longest)).is_ok());
}

#[test]
fn what_can_not_be_had_is_named_with_its_remedy() {
    let long_name = "n".repeat(65);
    let long_path = format!("/{}", "x".repeat(107));
    let with_mode = |kind, address, mode| Wanted { mode: Some(mode), ..wanted("l", kind, address) };
    for (wanted, words) in [
        (wanted("", Kind::Tcp, "[::]:1"), ["\"\"", "1 to 64"]),
        (wanted(&long_name, Kind::Tcp, "[::]:1"), [long_name.as_str(), "1 to 64"]),
        (wanted("Web", Kind::Tcp, "[::]:1"), ["\"Web\"", "a-z"]),
        (wanted("a\nb", Kind::Tcp, "[::]:1"), ["\"a\\nb\"", "a-z"]),
        (quic("[::]:1", 0), ["0 members", "1 to 253"]),
        (quic("[::]:1", 254), ["254 members", "1 to 253"]),
        (Wanted { members: 2, ..wanted("l", Kind::Tcp, "[::]:1") }, ["2 members", "exactly 1"]),
        (Wanted { members: 2, ..wanted("l", Kind::Unix, "/x") }, ["2 members", "exactly 1"]),
        (wanted("l", Kind::Tcp, "localhost:80"), ["\"localhost:80\"", "IP address"]),
        (wanted("l", Kind::Tcp, "::1:80"), ["\"::1:80\"", "[::]:443"]),
        (wanted("l", Kind::Tcp, "127.0.0.1"), ["\"127.0.0.1\"", "a port"]),
        (wanted("l", Kind::Quic, "/run/x"), ["\"/run/x\"", "quic"]),
        (wanted("l", Kind::Unix, "run/x"), ["\"run/x\"", "absolute"]),
        (wanted("l", Kind::Unix, "/run/"), ["\"/run/\"", "absolute"]),
        (wanted("l", Kind::Unix, "/run/.."), ["\"/run/..\"", "absolute"]),
        (wanted("l", Kind::Unix, "/a\0b"), ["\"/a\\0b\"", "absolute"]),
        (wanted("l", Kind::Unix, "127.0.0.1:80"), ["\"127.0.0.1:80\"", "absolute"]),
        (wanted("l", Kind::Unix, &long_path), [long_path.as_str(), "107 bytes"]),
        (with_mode(Kind::Unix, "/x", 0o1777), ["1777", "permission bits"]),
        (with_mode(Kind::Tcp, "[::]:1", 0o600), ["tcp", "leave it out"]),
    ] {
        let error = parse(wanted).expect_err(words[0]);
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
}

#[test]
fn one_name_can_not_be_used_twice() {
    let twice = [wanted("l", Kind::Tcp, "[::]:1"), wanted("l", Kind::Unix, "/x")];
    let error = Request::parse_all(&twice).expect_err("twice").to_string();
    assert!(error.contains("listener l is wanted twice"), "{error}");
}

#[test]
fn addresses_overlap_when_a_packet_could_be_for_both() {
    for (one, other, overlap) in [
        ("[::]:1", "0.0.0.0:1", true),
        ("[::]:1", "127.0.0.1:1", true),
        ("[::]:1", "[::1]:1", true),
        ("0.0.0.0:1", "127.0.0.1:1", true),
        ("0.0.0.0:1", "[::1]:1", false),
        ("127.0.0.1:1", "127.0.0.2:1", false),
        ("127.0.0.1:1", "127.0.0.1:1", true),
        ("[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
        ("[::]:1", "[::]:2", false),
        ("[::]:0", "[::]:0", false),
    ] {
        let [a, b] = [one, other].map(|address| Address::Inet(address.parse().expect("an address")));
        assert_eq!((a.overlaps(&b), b.overlaps(&a)), (overlap, overlap), "{one} {other}");
    }
}

proptest! {
    #[test]
    fn nothing_that_a_child_says_panics(
        name in ".*", address in ".*", members: u16, mode: Option<u32>,
        kind in prop::sample::select(&[Kind::Quic, Kind::Tcp, Kind::Unix][..]),
    ) {
        let _ = Request::parse_all(&[Wanted { name, kind, address, members, mode }]);
    }
}
