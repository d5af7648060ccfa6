use super::{addresses, generation, inodes, numbers, quic, sockets_on, table, target, wanted};
use crate::sockets::{GrantError, Warning};
use protocol::exit;
use protocol::message::{Kind, Wanted};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

const SYSCTLS: [&str; 2] = ["net.core.rmem_max", "net.core.wmem_max"];

#[test]
fn each_kind_is_bound_and_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s").display().to_string();
    let mut table = table();
    let all = [quic("[::1]:0", 3), wanted("web", Kind::Tcp, "127.0.0.1:0"), wanted("local", Kind::Unix, &path)];
    let granted = table.grant(generation(1), &all, None, false).expect("granted");
    let kinds: Vec<_> = granted.listeners.iter().map(|handed| (&*handed.socket.name, handed.socket.kind)).collect();
    assert_eq!(kinds, [("quic", Kind::Quic), ("web", Kind::Tcp), ("local", Kind::Unix)]);
    assert_eq!(numbers(&granted), [vec![0, 1, 2], vec![0], vec![0]]);
    assert!(granted.listeners.iter().all(|handed| handed.fds.len() == handed.socket.members.len()));
    let at = addresses(&granted);
    assert!(at[0].starts_with("[::1]:") && !at[0].ends_with(":0"), "{at:?}");
    assert_eq!(at[2], path);
    TcpStream::connect(&*at[1]).expect("it listens");
    std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    for warning in &granted.warnings {
        let Warning::Buffer { sysctl, .. } = warning else { panic!("{warning}") };
        assert!(SYSCTLS.contains(sysctl), "{warning}");
    }
}

#[test]
fn a_buffer_smaller_than_wanted_is_reported_with_the_knob() {
    let mut table = table();
    let granted = table.grant(generation(1), &[quic("127.0.0.1:0", 2)], None, false).expect("granted");
    for sysctl in SYSCTLS {
        let file = format!("/proc/sys/{}", sysctl.replace('.', "/"));
        let most: usize = std::fs::read_to_string(file).expect("the sysctl").trim().parse().expect("a number");
        let warned = granted.warnings.iter().find(|warning| warning.to_string().contains(sysctl));
        assert_eq!(warned.is_some(), most < 8 << 20, "{:?}", granted.warnings);
        if let Some(Warning::Buffer { granted, .. }) = warned {
            assert_eq!(*granted, most);
        }
    }
}

#[test]
fn numbers_go_on_over_the_listeners_of_one_generation() {
    let mut table = table();
    let two = |members| [quic("127.0.0.1:0", members), Wanted { name: "b".into(), ..quic("[::1]:0", 2) }];
    let first = table.grant(generation(1), &two(3), None, false).expect("granted");
    assert_eq!(numbers(&first), [vec![0, 1, 2], vec![3, 4]]);
    let second = table.grant(generation(2), &two(2), None, false).expect("granted");
    assert_eq!(numbers(&second), [vec![0, 1], vec![2, 3]], "numbers of one generation say nothing about another's");
}

#[test]
fn port_zero_stays_where_it_was_found_under_the_same_name() {
    let mut table = table();
    let all = [quic("127.0.0.1:0", 1), wanted("web", Kind::Tcp, "127.0.0.1:0")];
    let first = addresses(&table.grant(generation(1), &all, None, false).expect("granted"));
    let again = addresses(&table.grant(generation(2), &all, None, false).expect("granted"));
    assert_eq!(first, again);
    table.retire(generation(1));
    let later = addresses(&table.grant(generation(3), &all, None, false).expect("granted"));
    assert_eq!(first, later);
    let explicit = [quic(&first[0], 1), wanted("web", Kind::Tcp, &first[1])];
    let explicit = addresses(&table.grant(generation(4), &explicit, None, false).expect("granted"));
    assert_eq!(first, explicit, "who names the port that was found means the same listener");
    let other = [Wanted { name: "other".into(), ..quic("127.0.0.1:0", 1) }];
    let other = addresses(&table.grant(generation(5), &other, None, false).expect("granted"));
    assert_ne!(first[0], other[0]);
}

#[test]
fn a_listener_under_a_new_name_is_the_same_socket() {
    let mut table = table();
    table.grant(generation(1), &[wanted("web", Kind::Tcp, "127.0.0.1:0")], None, false).expect("granted");
    let at = target(&table, 1).to_string();
    table.grant(generation(2), &[wanted("http", Kind::Tcp, &at)], None, false).expect("granted");
    assert_eq!(inodes(&table, 1), inodes(&table, 2));
}

#[test]
fn a_listener_that_nobody_wants_is_closed() {
    let mut table = table();
    let web = wanted("web", Kind::Tcp, "127.0.0.1:0");
    let at = addresses(&table.grant(generation(1), &[quic("127.0.0.1:0", 2), web], None, false).expect("granted"));
    let keep = [quic("127.0.0.1:0", 2)];
    table.grant(generation(2), &keep, None, false).expect("granted");
    TcpStream::connect(&*at[1]).expect("generation 1 still wants it");
    table.retire(generation(1));
    TcpListener::bind(&*at[1]).expect("it is free");
    table.retire(generation(2));
    UdpSocket::bind(&*at[0]).expect("it is free");
    table.retire(generation(2));
}

#[test]
fn a_grant_that_fails_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let held = held.local_addr().expect("bound").to_string();
    let mut table = table();
    table.grant(generation(1), &[quic("127.0.0.1:0", 2)], None, false).expect("granted");
    let port = target(&table, 1).port();
    let before = inodes(&table, 1);
    let all = [
        quic("127.0.0.1:0", 5),
        wanted("local", Kind::Unix, &path.display().to_string()),
        wanted("web", Kind::Tcp, &held),
    ];
    let error = table.grant(generation(2), &all, None, false).expect_err("the port is held");
    assert_eq!(error.exit_status(), exit::IN_USE);
    assert_eq!((inodes(&table, 1), table.members(), sockets_on(port)), (before, 2, 2));
    assert!(table.handed(generation(2)).is_empty());
    assert!(!path.exists());
    table.grant(generation(2), &all[..2], None, false).expect("the same generation may try again");
}

#[test]
fn a_generation_gets_its_listeners_once() {
    let mut table = table();
    table.grant(generation(1), &[], None, false).expect("it may want nothing");
    let again = table.grant(generation(1), &[], None, false).expect_err("twice");
    assert_eq!(again.exit_status(), exit::NOT_READY);
}

/// Guards: a `[::]` bind onto a port with a `0.0.0.0` group of ours would succeed and split the clients.
#[test]
fn addresses_that_overlap_are_refused_wanted_together_or_one_after_the_other() {
    for kind in [Kind::Quic, Kind::Tcp] {
        for (one, other) in [("0.0.0.0", "[::]"), ("[::]", "0.0.0.0"), ("127.0.0.1", "0.0.0.0"), ("[::]", "[::1]")] {
            let mut table = table();
            table.grant(generation(1), &[wanted("a", kind, &format!("{one}:0"))], None, false).expect("granted");
            let port = target(&table, 1).port();
            let [a, b] = [("a", one), ("b", other)].map(|(name, ip)| wanted(name, kind, &format!("{ip}:{port}")));
            let refused = |result: Result<_, GrantError>| {
                let Err(error @ GrantError::Overlap { .. }) = result else { panic!("{kind} {one} {other}") };
                let text = error.to_string();
                assert!(text.contains(&a.address) && text.contains(&b.address), "{text}");
            };
            refused(table.grant(generation(2), std::slice::from_ref(&b), None, false).map(|_| ()));
            refused(table.grant(generation(2), &[a.clone(), b.clone()], None, false).map(|_| ()));
            table.retire(generation(1));
            refused(table.grant(generation(2), &[a.clone(), b.clone()], None, false).map(|_| ()));
            refused(table.grant(generation(2), &[b.clone(), a.clone()], None, false).map(|_| ()));
        }
    }
}

#[test]
fn tcp_and_quic_share_a_port_number() {
    let mut table = table();
    table.grant(generation(1), &[quic("127.0.0.1:0", 1)], None, false).expect("granted");
    let at = target(&table, 1).to_string();
    let both = [quic("127.0.0.1:0", 1), wanted("web", Kind::Tcp, &at)];
    match table.grant(generation(2), &both, None, false) {
        Ok(granted) => assert_eq!(addresses(&granted), [at.clone(), at]),
        // Someone else's TCP port, by chance.
        Err(error) => assert_eq!(error.exit_status(), exit::IN_USE),
    }
}

#[test]
fn an_address_of_another_machine_is_refused_with_the_reason() {
    let error = table().grant(generation(1), &[quic("192.0.2.1:0", 1)], None, false).expect_err("not ours").to_string();
    assert!(error.contains("192.0.2.1:0") && error.contains("no interface has this address"), "{error}");
}

#[test]
fn a_dual_stack_listener_takes_both_families() {
    let mut table = table();
    let granted = table.grant(generation(1), &[quic("[::]:0", 1)], None, false).expect("granted");
    let at: SocketAddr = addresses(&granted)[0].parse().expect("an address");
    let member = UdpSocket::from(granted.listeners[0].fds[0].try_clone_to_owned().expect("a duplicate"));
    for (from, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")] {
        let client = UdpSocket::bind(from).expect("a client");
        client.send_to(b"x", (to, at.port())).expect("sent");
        let (_, source) = member.recv_from(&mut [0; 9]).expect("a packet");
        assert_eq!(source.port(), client.local_addr().expect("bound").port());
    }
}
