use super::{generation, quic, table, wanted};
use crate::sockets::{GrantError, Holder};
use crate::sys::exec::clean_slate;
use protocol::exit;
use protocol::message::{Kind, Wanted};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

/// Another process that has this socket, until it is dropped.
struct Keeper(Child);

impl Keeper {
    fn of(socket: impl Into<OwnedFd>) -> Self {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        clean_slate(&mut command, Some(socket.into()));
        #[expect(clippy::disallowed_methods, reason = "tests start processes of their own")]
        Self(command.spawn().expect("cat starts"))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn who_holds_a_port_is_named_with_pid_and_program() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (udp_at, tcp_at) = (udp.local_addr().expect("bound"), tcp.local_addr().expect("bound"));
    let any = |port| format!("0.0.0.0:{port}");
    let cases = [
        (Keeper::of(udp), [quic(&udp_at.to_string(), 2), quic(&any(udp_at.port()), 2)]),
        (
            Keeper::of(tcp),
            [wanted("web", Kind::Tcp, &tcp_at.to_string()), wanted("web", Kind::Tcp, &any(tcp_at.port()))],
        ),
    ];
    for (keeper, wanteds) in cases {
        for wanted in wanteds {
            let error = table().grant(generation(1), std::slice::from_ref(&wanted), None, false).expect_err("held");
            assert_eq!(error.exit_status(), exit::IN_USE);
            let text = error.to_string();
            let pid = format!("pid {}", keeper.0.id());
            for part in [&*wanted.name, &wanted.address, &pid, "cat"] {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}

#[test]
fn a_holder_that_may_not_be_seen_is_named_by_user() {
    assert_eq!(Holder::User { uid: 7 }.to_string(), "a process of uid 7");
    assert_eq!(Holder::of_socket(u64::MAX, 7), Holder::User { uid: 7 });
}

/// Even one that would share: its packets would be ours by half.
#[test]
fn a_port_held_with_reuseport_by_the_same_user_is_in_use() {
    let mut running = table();
    let granted = running.grant(generation(1), &[quic("127.0.0.1:0", 2)], None, false).expect("granted");
    let wanted = [Wanted { address: granted.listeners[0].socket.address.clone(), ..quic("", 2) }];
    let Err(GrantError::InUse { holder: Holder::Process { pid, .. }, .. }) =
        table().grant(generation(1), &wanted, None, false)
    else {
        panic!("a second supervisor must not join the group");
    };
    assert_eq!(pid, std::process::id());
}

/// What makes a lock unnecessary: the first member binds without SO_REUSEPORT.
#[test]
fn of_two_supervisors_that_start_at_once_at_most_one_gets_the_port() {
    let mut rounds_won = 0;
    for _ in 0..100 {
        let port = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let wanted = [quic(&format!("127.0.0.1:{port}"), 3)];
        let start = Barrier::new(2);
        let done = Barrier::new(2);
        let supervisor = || {
            let mut table = table();
            start.wait();
            let won = table.grant(generation(1), &wanted, None, false).is_ok();
            done.wait();
            won
        };
        let wins = std::thread::scope(|scope| {
            let threads = [scope.spawn(supervisor), scope.spawn(supervisor)];
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let wins = wins.iter().filter(|won| **won).count();
        assert!(wins <= 1);
        rounds_won += wins;
    }
    // A port may go to someone else in between, but not each time.
    assert!(rounds_won > 50, "{rounds_won}");
}
