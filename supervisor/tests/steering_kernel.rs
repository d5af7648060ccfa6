//! The steering program in the kernel: real groups on loopback, every packet counted. No test needs a privilege.

#![expect(clippy::disallowed_methods, reason = "a test reads the clock for its deadlines")]
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod support;

use protocol::cid::Cipher;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use supervisor::steering::{Plan, model, program};
use supervisor::sys::bpf;
use support::{Group, id, long, member, range, short, tag};

const V4_ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
const V6_ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

fn cipher() -> Cipher {
    Cipher::new(b"a key for tests.")
}

/// Sends packets to a group and books where each has to arrive. The last eight bytes of a packet tell it from others.
struct Traffic {
    clients: Vec<UdpSocket>,
    rng: StdRng,
    next: u64,
    /// Per packet on its way, the positions that may get it.
    expected: HashMap<[u8; 8], Vec<u16>>,
}

impl Traffic {
    /// Clients of both families reach a dual-stack group.
    fn to(group: &Group, v4: bool, v6: bool) -> Self {
        let connect = |source: SocketAddr, target: SocketAddr| {
            let client = UdpSocket::bind(source).unwrap();
            client.connect(target).unwrap();
            client
        };
        let mut clients = Vec::new();
        for host in 1..=12 {
            if v4 {
                let source = Ipv4Addr::new(127, 0, 0, host);
                clients.push(connect((source, 0).into(), (Ipv4Addr::LOCALHOST, group.port()).into()));
            }
            if v6 {
                clients.push(connect((Ipv6Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, group.port()).into()));
            }
        }
        Self { clients, rng: StdRng::seed_from_u64(1), next: 0, expected: HashMap::new() }
    }

    /// Sends one packet from a random client; it may arrive where any of the plans leads it.
    fn send(&mut self, cipher: &Cipher, plans: &[Plan], packet: impl FnOnce(&mut StdRng, [u8; 8]) -> Vec<u8>) {
        let tail = self.next.to_be_bytes();
        self.next += 1;
        let packet = packet(&mut self.rng, tail);
        let client = &self.clients[self.rng.random_range(0..self.clients.len())];
        let source = client.local_addr().unwrap();
        let positions = plans.iter().map(|plan| model::position(cipher, plan, &packet, source)).collect();
        self.expected.insert(tail, positions);
        assert_eq!(client.send(&packet).unwrap(), packet.len());
    }

    /// Waits until every packet has arrived, each where it should.
    fn arrive(&mut self, group: &Group) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.expected.is_empty() {
            group
                .drain(|position, packet| {
                    let tail = *packet.last_chunk().expect("a packet of this test");
                    let positions = self.expected.remove(&tail).expect("each packet arrives once");
                    assert!(positions.contains(&position), "at {position} instead of {positions:?}: {packet:02x?}");
                })
                .unwrap();
            assert!(Instant::now() < deadline, "{} packets were lost", self.expected.len());
        }
    }
}

/// A packet of any form, mostly one with an ID that is ours or nearly so, with the tail at its end.
fn any_packet(rng: &mut StdRng, cipher: &Cipher, plan: &Plan, tail: [u8; 8]) -> Vec<u8> {
    let range = plan.live()[rng.random_range(0..plan.live().len())];
    let ours = tag(range.generation().0, range.first().member().get() + rng.random_range(0..=range.members()));
    let mut id =
        if rng.random_ratio(2, 3) { id(cipher, ours, rng.random_range(0..1 << 36)) } else { rng.random() }.to_vec();
    if rng.random_ratio(1, 8) {
        id.resize(rng.random_range(0..=20), 0xee);
    }
    let length = if rng.random() { rng.random_range(0..64) } else { rng.random_range(64..=1_400) };
    match rng.random_range(0..10) {
        0 => tail.to_vec(),
        1..=5 => short(&id, length, &tail),
        _ => long(&id, length, &tail),
    }
}

/// Three generations of four, a canary among them.
fn plan() -> Plan {
    let live = vec![range(7, 0, 4, 0), range(8, 4, 4, 4), range(9, 8, 4, 8)];
    Plan::new(12, live.clone(), live[1], Some((live[2], 300))).unwrap()
}

fn every_form_arrives_as_the_model_says(address: SocketAddr, only_v6: bool, v4: bool, v6: bool) {
    let (cipher, plan) = (cipher(), plan());
    let group = Group::bind(address, 12, only_v6).unwrap();
    bpf::attach(group.any(), &program(&cipher, &plan)).unwrap();
    let mut traffic = Traffic::to(&group, v4, v6);
    for _ in 0..60 {
        for _ in 0..50 {
            traffic.send(&cipher, std::slice::from_ref(&plan), |rng, tail| any_packet(rng, &cipher, &plan, tail));
        }
        traffic.arrive(&group);
    }
}

#[test]
fn ipv4_packets_arrive_as_the_model_says() {
    every_form_arrives_as_the_model_says(V4_ANY, false, true, false);
}

#[test]
fn ipv6_packets_arrive_as_the_model_says() {
    every_form_arrives_as_the_model_says(V6_ANY, true, false, true);
}

#[test]
fn packets_of_both_families_arrive_as_the_model_says_on_a_dual_stack_group() {
    every_form_arrives_as_the_model_says(V6_ANY, false, true, true);
}

/// The kernel must run one program or the other for each packet: traffic flows while another thread replaces the
/// program as fast as it can.
#[test]
fn a_thousand_swaps_lose_and_misroute_nothing() {
    let cipher = cipher();
    let live = vec![range(7, 0, 4, 0), range(8, 4, 4, 4), range(9, 8, 4, 8)];
    let plans = [
        Plan::new(12, live.clone(), live[1], None).unwrap(),
        Plan::new(12, live.clone(), live[1], Some((live[2], 500))).unwrap(),
        Plan::new(12, live.clone(), live[2], None).unwrap(),
    ];
    let programs = plans.each_ref().map(|plan| program(&cipher, plan));
    let group = Group::bind(V6_ANY, 12, false).unwrap();
    bpf::attach(group.any(), &programs[0]).unwrap();
    let mut traffic = Traffic::to(&group, true, true);
    let (swaps, done) = (AtomicU32::new(0), AtomicBool::new(false));

    std::thread::scope(|scope| {
        scope.spawn(|| {
            for next in programs.iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                bpf::attach(group.any(), next).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        while swaps.load(Ordering::Relaxed) < 1_000 || traffic.next < 20_000 {
            for _ in 0..60 {
                traffic.send(&cipher, &plans, |rng, tail| any_packet(rng, &cipher, &plans[0], tail));
            }
            traffic.arrive(&group);
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("{} packets during {} swaps", traffic.next, swaps.into_inner());
}

/// An upgrade binds the new generation's members while the old one serves; the kernel copies the group to a larger array
/// at 128 and 256 members.
#[test]
fn a_group_that_grows_under_traffic_keeps_its_positions() {
    let (cipher, plan) = (cipher(), plan());
    let group = Group::bind(V4_ANY, 12, false).unwrap();
    bpf::attach(group.any(), &program(&cipher, &plan)).unwrap();
    let mut traffic = Traffic::to(&group, true, false);
    let address = SocketAddr::new(V4_ANY.ip(), group.port());
    std::thread::scope(|scope| {
        let growth = scope.spawn(|| (0..300).map(|_| member(address, false).unwrap()).collect::<Vec<_>>());
        while !growth.is_finished() || traffic.next < 10_000 {
            for _ in 0..50 {
                traffic.send(&cipher, std::slice::from_ref(&plan), |rng, tail| any_packet(rng, &cipher, &plan, tail));
            }
            traffic.arrive(&group);
        }
        growth.join().unwrap()
    });
}

/// Two generations with as many members as one message can bring descriptors.
#[test]
fn every_member_of_a_large_group_is_reached() {
    let cipher = cipher();
    let (old, new) = (range(1, 0, 253, 0), range(2, 253, 253, 253));
    let plan = Plan::new(506, vec![old, new], new, None).unwrap();
    let group = Group::bind(V4_ANY, 506, false).unwrap();
    bpf::attach(group.any(), &program(&cipher, &plan)).unwrap();
    let mut traffic = Traffic::to(&group, true, false);
    for member in 0..506 {
        let tag = tag(if member < 253 { 1 } else { 2 }, member);
        traffic.send(&cipher, std::slice::from_ref(&plan), |_, tail| short(&id(&cipher, tag, 1), 40, &tail));
    }
    traffic.arrive(&group);
}

#[test]
fn the_longest_program_is_accepted() {
    let live: Vec<_> = (0..64).map(|index| range(1 + u32::from(index), index, 1, index)).collect();
    let plan = Plan::new(64, live.clone(), live[0], Some((live[1], 1))).unwrap();
    let group = Group::bind(V4_ANY, 64, false).unwrap();
    bpf::attach(group.any(), &program(&cipher(), &plan)).unwrap();
    bpf::detach(group.any()).unwrap();
    assert_eq!(bpf::detach(group.any()).unwrap_err().raw_os_error(), Some(libc::ENOENT), "it was taken off");
}

#[test]
fn a_socket_outside_any_group_is_refused_with_the_kernels_word() {
    let alone = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = bpf::attach(std::os::fd::AsFd::as_fd(&alone), &program(&cipher(), &plan())).unwrap_err();
    assert!(matches!(error, bpf::AttachError::Other { .. }), "{error}");
}

/// Runs the next test as a user who may nothing: uid 65534, which loses every capability, with no_new_privs.
#[test]
fn an_unprivileged_process_can_steer() {
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("steering_kernel");
    // The build directory may be out of that user's reach.
    std::fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    for path in [dir.path(), &binary] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(&binary);
    command.args(["--exact", "as_nobody", "--ignored", "--nocapture"]).current_dir("/").env_clear();
    if nix::unistd::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "run by an_unprivileged_process_can_steer, as another user"]
fn as_nobody() {
    nix::sys::prctl::set_no_new_privs().unwrap();
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert!(!nix::unistd::geteuid().is_root());
    assert_eq!(
        (field("CapEff:"), field("CapPrm:"), field("NoNewPrivs:")),
        ("0".repeat(16), "0".repeat(16), "1".into())
    );
    every_form_arrives_as_the_model_says(V6_ANY, false, true, true);
}
