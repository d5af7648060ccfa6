use super::{client_for, filled, generation, initial, inodes, packet, quic, table, target, wanted};
use crate::core::Steering;
use crate::sockets::{GrantError, Stranded, Table};
use crate::state::{Inherited, KindEntry, SocketsEntry};
use protocol::cid::Cipher;
use protocol::message::{Generation, Kind, Wanted};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;

/// What another process gets: the document's part as JSON, and duplicates of the sockets in any order.
fn saved(table: &Table) -> (SocketsEntry, Inherited) {
    let (entry, fds) = table.save();
    let mut inherited = Inherited::default();
    for (name, fd) in fds.into_iter().rev() {
        inherited.insert(name, fd.try_clone_to_owned().expect("a duplicate"));
    }
    let text = serde_json::to_string(&entry).expect("JSON");
    (serde_json::from_str(&text).expect("the same"), inherited)
}

fn restored(entry: &SocketsEntry, inherited: &mut Inherited) -> (Table, Vec<Stranded>) {
    Table::restore(Cipher::new(&super::KEY), entry, inherited)
}

fn handed(table: &Table, of: u32) -> Vec<(String, String, Vec<u16>)> {
    let of_each = table.handed(generation(of)).into_iter();
    of_each.map(|handed| (handed.socket.name, handed.socket.address, handed.socket.members)).collect()
}

fn steering(live: &[u32], active: u32) -> Steering {
    Steering { live: live.iter().copied().map(Generation).collect(), active: Generation(active), canary: None }
}

#[test]
fn another_process_has_the_same_sockets_in_the_same_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let all = |members| {
        let unix = Wanted { mode: Some(0o640), ..wanted("local", Kind::Unix, &path.display().to_string()) };
        [quic("[::]:0", members), wanted("web", Kind::Tcp, "127.0.0.1:0"), unix]
    };
    let mut table = table();
    for (of, members) in [(1, 3), (2, 2), (3, 3)] {
        table.grant(generation(of), &all(members), None, false).expect("granted");
    }
    table.retire(generation(2));
    table.steer(&steering(&[1, 3], 3)).expect("attached");
    table.gro(true).expect("set");

    let (entry, mut inherited) = saved(&table);
    let (mut next, stranded) = restored(&entry, &mut inherited);
    assert_eq!(stranded, []);
    assert_eq!(inherited.rest().count(), 0);
    for of in [1, 3] {
        assert_eq!(inodes(&next, of), inodes(&table, of));
        assert_eq!(handed(&next, of), handed(&table, of));
    }
    assert_eq!(next.save().0, entry, "and it says so");
    drop(table);

    // The kernel's positions are those that the document says.
    next.steer(&steering(&[1, 3], 1)).expect("attached");
    let to = target(&next, 1);
    let client = client_for(to);
    for (of, member) in [(1, 0), (1, 2), (3, 1)] {
        client.send_to(&packet(of, member, 1), to).expect("sent");
        assert_eq!(filled(&next, of), [usize::from(member)]);
        super::take_one(&next, of, member.into());
    }
    client.send_to(&initial(), to).expect("sent");
    assert_eq!(filled(&next, 1).len(), 1);
    // A successor gets the free members before new ones, at the ports first found.
    let before = next.members();
    next.grant(generation(4), &all(2), None, false).expect("granted");
    assert_eq!(next.members(), before);
    assert_eq!(handed(&next, 4)[1].1, handed(&next, 1)[1].1);
    // The file is known to be ours.
    for of in [1, 3, 4] {
        next.retire(generation(of));
    }
    assert!(!path.exists());
}

/// To close what is left of a group would move its other members, which the attached program counts on.
#[test]
fn a_group_that_is_not_complete_is_kept_open_and_handed_to_nobody() {
    let mut table = table();
    table.grant(generation(1), &[quic("127.0.0.1:0", 3)], None, false).expect("granted");
    let address = handed(&table, 1)[0].1.clone();
    let held = inodes(&table, 1);
    let (entry, mut inherited) = saved(&table);
    drop(inherited.one("socket.0.1"));
    let (next, stranded) = restored(&entry, &mut inherited);
    assert_eq!(stranded.iter().map(|stranded| &stranded.address).collect::<Vec<_>>(), [&address]);
    assert!(stranded[0].to_string().contains("1 of 3 are missing"), "{}", stranded[0]);
    assert!(handed(&next, 1).is_empty());

    // And so for every process after that.
    let (entry, mut inherited) = saved(&next);
    assert_eq!(entry.stranded, ["socket.0.0", "socket.0.2"]);
    drop(next);
    let (mut last, _) = restored(&entry, &mut inherited);
    drop(table);
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let open = crate::sys::sock_diag::on_port(crate::sys::sock_diag::Transport::Udp, port).expect("listed");
    assert_eq!(open.len(), 2);
    assert!(open.iter().all(|socket| held.contains(&socket.inode)));
    let error = last.grant(generation(2), &[quic(&address, 1)], None, false).expect_err("held");
    assert!(matches!(error, GrantError::InUse { .. }), "{error}");
}

#[test]
fn what_is_not_what_the_document_says_is_not_used() {
    let mut table = table();
    table.grant(generation(1), &[quic("127.0.0.1:0", 2)], None, false).expect("granted");
    let (entry, _) = table.save();
    let other = TcpListener::bind("127.0.0.1:0").expect("bound");
    let first = table.handed(generation(1))[0].fds[0].try_clone_to_owned().expect("a duplicate");
    for second in [other.as_fd(), first.as_fd()] {
        let mut inherited = Inherited::default();
        inherited.insert("socket.0.0".to_owned(), first.try_clone().expect("a duplicate"));
        inherited.insert("socket.0.1".to_owned(), second.try_clone_to_owned().expect("a duplicate"));
        let (next, stranded) = restored(&entry, &mut inherited);
        assert_eq!(stranded.len(), 1);
        assert!(handed(&next, 1).is_empty());
    }
    let mut strange = entry.clone();
    strange.listeners[0].kind = KindEntry::Unknown;
    let (next, stranded) = restored(&strange, &mut saved(&table).1);
    assert_eq!((stranded.len(), next.members()), (0, 0));
    let mut strange = entry;
    strange.holdings[0].runs[0].len = usize::MAX;
    let (next, _) = restored(&strange, &mut saved(&table).1);
    assert!(handed(&next, 1).is_empty());
}

/// Of a `.socket` unit.
#[test]
fn an_offered_listener_serves_whoever_wants_its_address_and_outlives_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("bound");
    let unix = UnixListener::bind(&path).expect("bound");
    let address = tcp.local_addr().expect("bound").to_string();
    let inode_of_tcp = super::inode(&tcp);
    let mut table = table();
    assert_eq!(table.offer(tcp.into()), Ok(format!("tcp {address}")));
    assert_eq!(table.offer(unix.into()), Ok(format!("unix {}", path.display())));
    let wants = [wanted("web", Kind::Tcp, &address), wanted("local", Kind::Unix, &path.display().to_string())];
    for of in [1, 2] {
        table.grant(generation(of), &wants, None, false).expect("granted");
        assert_eq!(inodes(&table, of)[0], inode_of_tcp);
        table.retire(generation(of));
        assert!(path.exists(), "it is not ours");
        TcpStream::connect(&address).expect("it listens");
    }
    assert_eq!(table.offered_sockets().count(), 2);
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    assert!(table.offer(udp.into()).is_err_and(|line| line.contains("QUIC")));
}
