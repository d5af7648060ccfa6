//! What the steering program costs per packet: the time to send packets of 1 200 bytes over loopback and to receive them
//! from a group of eight, with no program, with `byte % N`, and with ours for a known and an unknown connection ID.
//!
//! Rounds are short and go through all four in turn; results are medians, differences are medians of the differences
//! within a round, so that neither drift nor a disturbed round counts. Prints one JSON object; takes about ten seconds.

#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "../tests/support/mod.rs"]
mod support;

use anyhow::{Context, Result, ensure};
use protocol::cid::Cipher;
use serde_json::json;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Instant;
use supervisor::steering::{Insn, Plan, Program, program};
use supervisor::sys::bpf;
use support::{Group, id, long, range, short, tag};

const MEMBERS: u16 = 8;
const ROUNDS: usize = 3_000;
/// So many that the smallest default receive buffer holds them all.
const PACKETS: u16 = 64;
const LENGTH: usize = 1_200;

fn main() -> Result<()> {
    let cipher = Cipher::new(b"a key to measure");
    let (old, new) = (range(1, 0, 4, 0), range(2, 4, 4, 4));
    let ours = program(&cipher, &Plan::new(MEMBERS, vec![old, new], new, None)?);
    let modulo = byte_modulo(MEMBERS.into())?;

    let known: Vec<_> = (0..PACKETS)
        .map(|index| {
            let member = index % MEMBERS;
            short(&id(&cipher, tag(1 + u32::from(member) / 4, member), index.into()), LENGTH, &[])
        })
        .collect();
    // Initials of new clients, each with an ID that the client made up.
    let unknown: Vec<_> = (0..PACKETS).map(|index| long(&[index.to_be_bytes(); 4].concat(), LENGTH, &[])).collect();

    let group = Group::bind((Ipv4Addr::LOCALHOST, 0).into(), MEMBERS, false)?;
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    client.connect((Ipv4Addr::LOCALHOST, group.port()))?;
    let cases = [
        Case { name: "none", program: None, packets: &known },
        Case { name: "byte_modulo", program: Some(&modulo), packets: &known },
        Case { name: "own_id", program: Some(&ours), packets: &known },
        Case { name: "unknown_id", program: Some(&ours), packets: &unknown },
    ];

    // One row per round, one column per case: nanoseconds per packet.
    let mut rows = vec![[0.0; 4]; ROUNDS];
    let mut attach_us = Vec::new();
    for (round, row) in rows.iter_mut().enumerate() {
        for turn in 0..cases.len() {
            let case = (round + turn) % cases.len();
            let Case { program, packets, .. } = cases[case];
            let begin = Instant::now();
            match program {
                Some(program) => bpf::attach(group.any(), program)?,
                // The case before left one, whichever it was.
                None => detach(&group)?,
            }
            if program == Some(&ours) {
                attach_us.push(begin.elapsed().as_secs_f64() * 1e6);
            }
            // The first packets find a program that no cache holds yet.
            pass(&client, &group, &packets[..16])?;
            let begin = Instant::now();
            pass(&client, &group, packets)?;
            row[case] = begin.elapsed().as_secs_f64() * 1e9 / f64::from(PACKETS);
        }
    }

    let above_modulo = |case: usize| median(rows.iter().map(|row| row[case] - row[1]).collect());
    let result = json!({
        "rounds": ROUNDS, "packets_per_round": PACKETS, "packet_bytes": LENGTH, "members": MEMBERS,
        "instructions": { "byte_modulo": modulo.insns().len(), "steering": ours.insns().len() },
        "attach_us": median(attach_us),
        "ns_per_packet": (0..4).map(|case| (cases[case].name, median(rows.iter().map(|row| row[case]).collect())))
            .collect::<std::collections::BTreeMap<_, _>>(),
        "ns_above_byte_modulo": { "own_id": above_modulo(2), "unknown_id": above_modulo(3), "none": above_modulo(0) },
    });
    writeln!(std::io::stdout(), "{result:#}")?;
    Ok(())
}

#[derive(Clone, Copy)]
struct Case<'a> {
    name: &'static str,
    program: Option<&'a Program>,
    packets: &'a [Vec<u8>],
}

/// Sends all packets and receives them all.
fn pass(client: &UdpSocket, group: &Group, packets: &[Vec<u8>]) -> Result<()> {
    for packet in packets {
        client.send(packet)?;
    }
    let begin = Instant::now();
    let mut received = 0;
    while received < packets.len() {
        group.drain(|_, _| received += 1)?;
        ensure!(begin.elapsed().as_secs() < 5, "{} packets were lost", packets.len() - received);
    }
    Ok(())
}

fn detach(group: &Group) -> Result<()> {
    match bpf::detach(group.any()) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error).context("can't detach"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The common way to spread QUIC over sockets: the first byte of the destination connection ID, modulo their number.
fn byte_modulo(members: u32) -> Result<Program> {
    let insn = |code, jump_true, jump_false, k| Insn { code, jump_true, jump_false, k };
    let insns = vec![
        insn(0x30, 0, 0, 0),       // A = first byte
        insn(0x45, 0, 2, 0x80),    // a short header: skip two
        insn(0x30, 0, 0, 6),       // A = first byte of the ID behind a long header
        insn(0x05, 0, 0, 1),       // skip one
        insn(0x30, 0, 0, 1),       // A = first byte of the ID behind a short header
        insn(0x94, 0, 0, members), // A %= members
        insn(0x16, 0, 0, 0),       // return A
    ];
    Ok(Program::try_from(insns)?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2] * 10.0).round() / 10.0
}
