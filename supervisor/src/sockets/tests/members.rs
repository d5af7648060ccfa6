use super::{
    client_for, filled, generation, initial, inodes, numbers, packet, quic, sockets_on, table, take_one, target,
};
use crate::core::Steering;
use crate::sockets::GroError;
use crate::sockets::{GrantError, Table};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use protocol::exit;
use protocol::message::{Kind, Wanted};
use std::fs;

fn grant(table: &mut Table, of: u32, members: u16) {
    table.grant(generation(of), &[quic("127.0.0.1:0", members)], None, false).expect("granted");
}

fn steer(table: &mut Table, live: &[u32], active: u32) {
    let live = live.iter().copied().map(generation).collect();
    table.steer(&Steering { live, active: generation(active), canary: None }).expect("attached");
}

#[test]
fn members_of_retired_generations_are_issued_again_and_nobody_elses_move() {
    let mut table = table();
    grant(&mut table, 1, 4);
    grant(&mut table, 2, 4);
    let (first, second) = (inodes(&table, 1), inodes(&table, 2));
    table.retire(generation(1));
    grant(&mut table, 3, 2);
    assert_eq!(inodes(&table, 3), first[..2]);
    grant(&mut table, 4, 2);
    assert_eq!(inodes(&table, 4), first[2..]);
    assert_eq!(inodes(&table, 2), second);
    grant(&mut table, 5, 3);
    assert_eq!(table.members(), 11);
    table.retire(generation(5));
    grant(&mut table, 6, 5);
    assert_eq!(table.members(), 13, "the free ones at the end are used before new ones are bound");
}

#[test]
fn a_member_is_issued_again_with_an_empty_queue() {
    let mut table = table();
    grant(&mut table, 1, 1);
    let first = inodes(&table, 1);
    grant(&mut table, 2, 1);
    steer(&mut table, &[1, 2], 2);
    let to = target(&table, 1);
    let client = client_for(to);
    for counter in 0..100 {
        client.send_to(&packet(1, 0, counter), to).expect("sent");
    }
    assert_eq!(filled(&table, 1), [0]);
    table.retire(generation(1));
    grant(&mut table, 3, 1);
    assert_eq!(inodes(&table, 3), first);
    assert_eq!(filled(&table, 3), [0; 0]);
}

#[test]
fn five_hundred_upgrades_keep_the_number_of_sockets() {
    let mut table = table();
    grant(&mut table, 1, 4);
    let port = target(&table, 1).port();
    for of in 2..=500 {
        grant(&mut table, of, 4);
        steer(&mut table, &[of - 1, of], of);
        table.retire(generation(of - 1));
    }
    assert_eq!((table.members(), sockets_on(port)), (8, 8));
    let ours: Vec<String> =
        [499, 500].iter().flat_map(|of| inodes(&table, *of)).map(|i| format!("socket:[{i}]")).collect();
    let fds = fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    let open = fds.filter_map(|fd| fs::read_link(fd.path()).ok()?.to_str().map(str::to_owned));
    assert_eq!(open.filter(|link| ours.contains(link)).count(), 4, "one descriptor per member");
}

#[test]
fn more_members_than_there_are_numbers_are_refused_before_any_is_bound() {
    let mut table = table();
    grant(&mut table, 1, 49);
    let many = |listeners: u32| -> Vec<Wanted> {
        (0..listeners).map(|i| Wanted { name: format!("l{i}"), kind: Kind::Quic, ..quic("127.0.0.1:0", 253) }).collect()
    };
    let error = table.grant(generation(2), &many(16), None, false).expect_err("4 097 members");
    assert!(matches!(error, GrantError::Members { wanted: 253, total: 4_097, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("listener l15") && text.contains("4096 is the limit"), "{text}");
    assert_eq!((error.exit_status(), table.members()), (exit::NOT_READY, 49));
}

#[test]
fn a_successor_serves_the_packets_that_wait_for_the_dead() {
    for (members, flush, waiting) in
        [(2, false, vec![0, 1]), (2, true, vec![]), (1, false, vec![0]), (4, false, vec![0, 1])]
    {
        let mut table = table();
        grant(&mut table, 1, 2);
        grant(&mut table, 2, 2);
        let dead = inodes(&table, 1);
        steer(&mut table, &[1, 2], 1);
        let to = target(&table, 1);
        let client = client_for(to);
        for member in 0..2 {
            client.send_to(&packet(1, member, 9), to).expect("sent");
        }
        let wanted = [quic("127.0.0.1:0", members)];
        let granted = table.grant(generation(3), &wanted, Some(generation(1)), flush).expect("granted");
        assert_eq!(numbers(&granted), [(0..members).collect::<Vec<_>>()]);
        let same = usize::from(members.min(2));
        assert_eq!(inodes(&table, 3)[..same], dead[..same]);
        assert_eq!(filled(&table, 3), waiting, "{members} {flush}");
        table.retire(generation(1));
        let taken = inodes(&table, 3);
        grant(&mut table, 4, 1);
        assert!(!taken.contains(&inodes(&table, 4)[0]), "what was taken over is not free");
    }
}

#[test]
fn members_that_were_taken_over_in_vain_stay_the_deads() {
    let mut table = table();
    grant(&mut table, 1, 2);
    let dead = inodes(&table, 1);
    steer(&mut table, &[1], 1);
    let to = target(&table, 1);
    client_for(to).send_to(&initial(), to).expect("sent");
    let wanted = [quic("127.0.0.1:0", 2)];
    for of in [2, 3] {
        table.grant(generation(of), &wanted, Some(generation(1)), false).expect("granted");
        assert_eq!(inodes(&table, of), dead);
        assert_eq!(filled(&table, of).len(), 1);
        if of == 2 {
            table.retire(generation(of));
        }
    }
    let index = filled(&table, 3)[0];
    take_one(&table, 3, index);
}

#[test]
fn gro_is_set_on_every_member_those_that_nobody_serves_and_new_ones_too() {
    let mut table = table();
    grant(&mut table, 1, 2);
    grant(&mut table, 2, 2);
    let all = |table: &Table, on: bool| {
        [1, 2, 3]
            .iter()
            .flat_map(|of| table.handed(generation(*of)))
            .all(|handed| handed.fds.iter().all(|fd| getsockopt(fd, sockopt::UdpGroSegment).expect("UDP_GRO") == on))
    };
    table.gro(true).expect("set");
    assert!(all(&table, true));
    grant(&mut table, 3, 2);
    assert!(all(&table, true));
    table.retire(generation(1));
    table.gro(false).expect("cleared");
    grant(&mut table, 1, 2);
    assert!(all(&table, false));
    // What quinn does when it wraps a socket.
    setsockopt(&table.handed(generation(2))[0].fds[1], sockopt::UdpGroSegment, &true).expect("set");
    table.gro(false).expect("cleared again");
    assert!(all(&table, false));
}

#[test]
fn gro_errors_name_address_and_member() {
    let unchanged = GroError::Unchanged { address: "[::]:443".into(), position: 3, on: false };
    assert_eq!(unchanged.to_string(), "UDP_GRO on member 3 of [::]:443 reads back on after it was turned off");
}
