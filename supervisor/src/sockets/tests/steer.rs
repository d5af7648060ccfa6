use super::{client_for, filled, generation, initial, inode, packet, quic, table, take_one, target};
use crate::core::Steering;
use crate::sockets::{Holder, Table};
use crate::sys::bpf;
use protocol::message::Wanted;
use socket2::{Domain, Protocol, Socket, Type};
use std::os::fd::AsFd;

fn steer(table: &mut Table, live: &[u32], active: u32, canary: Option<(u32, u16)>) {
    let live = live.iter().copied().map(generation).collect();
    let canary = canary.map(|(of, permille)| (generation(of), permille));
    table.steer(&Steering { live, active: generation(active), canary }).expect("attached");
}

/// Sends a new client's first packet; the result is whose member got it.
fn who_gets_new(table: &Table, to: u32, among: &[u32]) -> u32 {
    let to = target(table, to);
    client_for(to).send_to(&initial(), to).expect("sent");
    let mut got = among.iter().flat_map(|of| filled(table, *of).into_iter().map(|index| (*of, index)));
    let (of, index) = got.next().expect("someone got it");
    assert_eq!(got.next(), None, "one packet, one member");
    take_one(table, of, index);
    of
}

/// The kernel's array is in the order of binding, although the first member joined it by the second one's bind.
#[test]
fn the_position_of_a_member_is_the_order_of_its_binding() {
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        for members in [1, 2, 5] {
            let mut table = table();
            for of in [1, 2] {
                table.grant(generation(of), &[quic(address, members)], None, false).expect("granted");
            }
            steer(&mut table, &[1, 2], 2, None);
            let to = target(&table, 1);
            let client = client_for(to);
            for of in [1, 2] {
                for member in 0..members {
                    client.send_to(&packet(of, member, 7), to).expect("sent");
                    assert_eq!(filled(&table, of), [usize::from(member)], "{address} {members}");
                    assert_eq!(filled(&table, 3 - of), [0; 0]);
                    take_one(&table, of, member.into());
                }
            }
            assert_eq!(who_gets_new(&table, 1, &[1, 2]), 2);
        }
    }
}

#[test]
fn a_group_of_one_can_be_steered() {
    let mut table = table();
    table.grant(generation(1), &[quic("127.0.0.1:0", 1)], None, false).expect("granted");
    steer(&mut table, &[1], 1, None);
    assert_eq!(who_gets_new(&table, 1, &[1]), 1);
}

#[test]
fn new_clients_go_to_the_active_generation_and_a_share_to_the_canary() {
    let mut table = table();
    for of in [1, 2] {
        table.grant(generation(of), &[quic("127.0.0.1:0", 2)], None, false).expect("granted");
    }
    for (canary, expected) in [(None, 1), (Some((2, 0)), 1), (Some((2, 1_000)), 2)] {
        steer(&mut table, &[1, 2], 1, canary);
        for _ in 0..20 {
            assert_eq!(who_gets_new(&table, 1, &[1, 2]), expected, "{canary:?}");
        }
    }
}

/// The packets of a dead generation wait in its sockets; its own IDs lead nowhere else until the successor is live.
#[test]
fn the_active_one_may_be_dead_and_its_members_taken_over() {
    let mut table = table();
    let wanted = [quic("127.0.0.1:0", 2)];
    table.grant(generation(1), &wanted, None, false).expect("granted");
    steer(&mut table, &[], 1, None);
    assert_eq!(who_gets_new(&table, 1, &[1]), 1);
    table.grant(generation(2), &wanted, Some(generation(1)), false).expect("granted");
    for live in [&[2][..], &[1, 2]] {
        steer(&mut table, live, 1, None);
        assert_eq!(who_gets_new(&table, 1, &[2]), 2);
    }
    steer(&mut table, &[2], 2, None);
    table.retire(generation(1));
    assert_eq!(who_gets_new(&table, 2, &[2]), 2);
}

#[test]
fn a_listener_that_the_active_one_dropped_goes_to_the_youngest_that_has_it() {
    let mut table = table();
    let both = [quic("127.0.0.1:0", 1), Wanted { name: "b".into(), ..quic("[::1]:0", 1) }];
    for of in [1, 2] {
        table.grant(generation(of), &both[..1], None, false).expect("granted");
    }
    table.grant(generation(3), &both[1..], None, false).expect("granted");
    steer(&mut table, &[1, 2, 3], 3, None);
    assert_eq!(who_gets_new(&table, 1, &[1, 2, 3]), 2);
    assert_eq!(who_gets_new(&table, 3, &[1, 2, 3]), 3);
    table.retire(generation(2));
    steer(&mut table, &[1, 3], 3, None);
    assert_eq!(who_gets_new(&table, 1, &[1, 3]), 1);
    steer(&mut table, &[3], 3, None);
    assert_eq!(who_gets_new(&table, 1, &[1, 3]), 1, "a group of which nobody is live is left as it is");
}

#[test]
fn members_that_lie_apart_are_all_reached_by_their_ids() {
    let mut table = table();
    let wanted = |members| [quic("127.0.0.1:0", members)];
    for of in [1, 2] {
        table.grant(generation(of), &wanted(2), None, false).expect("granted");
    }
    table.grant(generation(3), &wanted(5), Some(generation(1)), false).expect("granted");
    steer(&mut table, &[2, 3], 3, None);
    let to = target(&table, 3);
    let client = client_for(to);
    for member in 0..5 {
        client.send_to(&packet(3, member, 1), to).expect("sent");
        assert_eq!(filled(&table, 3), [usize::from(member)]);
        take_one(&table, 3, member.into());
    }
}

#[test]
fn a_program_that_was_detached_comes_back() {
    let mut table = table();
    for of in [1, 2] {
        table.grant(generation(of), &[quic("127.0.0.1:0", 4)], None, false).expect("granted");
    }
    steer(&mut table, &[1, 2], 2, None);
    bpf::detach(table.handed(generation(1))[0].fds[0].as_fd()).expect("any holder can");
    table.reattach().expect("attached");
    for _ in 0..20 {
        assert_eq!(who_gets_new(&table, 1, &[1, 2]), 2);
    }
}

#[test]
fn a_socket_of_someone_else_in_a_group_is_found() {
    let mut table = table();
    table.grant(generation(1), &[quic("127.0.0.1:0", 2)], None, false).expect("granted");
    assert_eq!(table.foreign().expect("sock_diag"), []);
    let at = target(&table, 1);
    let intruder = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
    intruder.set_reuse_port(true).expect("set");
    intruder.bind(&at.into()).expect("the same user can");
    let foreign = table.foreign().expect("sock_diag");
    assert_eq!(foreign.len(), 1, "{foreign:?}");
    let Holder::Process { pid, .. } = foreign[0].holder else { panic!("{foreign:?}") };
    assert_eq!((foreign[0].address, pid), (at, std::process::id()));
    assert!(foreign[0].to_string().contains(&at.to_string()));
    assert_ne!(inode(&intruder), 0);
    drop(intruder);
    assert_eq!(table.foreign().expect("sock_diag"), []);
}
