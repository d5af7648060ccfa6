//! Commands and reports once adopted.

use super::*;
use crate::channel::read_memfd;

async fn next(receiver: &mut Receiver) -> Option<Command> {
    tokio::time::timeout(Duration::from_secs(10), receiver.next()).await.expect("a command in time")
}

#[tokio::test]
async fn every_command_arrives_as_sent() {
    let (supervisor, _sender, mut receiver) = adopted_child().await;
    let key = Secret::from_bytes([5; 32]).reset_key(&BootId::from_bytes([6; 16]), Generation(2));
    let (stream, mut peer) = UnixStream::pair().unwrap();
    let stats = GenerationStats { generation: Generation(2), stats: Stats { sessions: 7, ..Stats::default() } };
    supervisor.send(&ToChild::Activate { seq: 1 }, &[]);
    supervisor.send(&ToChild::Standby { seq: 2 }, &[]);
    supervisor.send(&ToChild::Canary { seq: 3, permille: 50 }, &[]);
    supervisor.send(&ToChild::Drain { seq: 4, timeout_ms: 2_000, spread_ms: Some(100) }, &[]);
    supervisor.send(&ToChild::Undrain { seq: 5 }, &[]);
    supervisor.send(&ToChild::Alone, &[]);
    supervisor.send(&ToChild::Reload, &[]);
    supervisor.send(&ToChild::Gro { on: true }, &[]);
    let memfd = sealed_memfd("reset", key.as_bytes()).unwrap();
    let route = Route { first: 0, members: 1, via: 4, via_members: 2 };
    let ledger = LedgerOf { generation: Generation(2), routes: vec![route] };
    let heir = ToChild::Heir { generations: vec![Generation(1), Generation(2)], ledgers: vec![ledger] };
    supervisor.send(&heir, &[memfd.try_clone().unwrap(), memfd, crate::ledger::create(1).unwrap()]);
    supervisor.send(&ToChild::Link { generation: Generation(2) }, &[stream.into()]);
    let (generations, gone) = (vec![stats.clone()], stats.stats.clone());
    supervisor.send(&ToChild::Counters { speaks: true, settled: true, generations, gone }, &[]);

    assert!(matches!(next(&mut receiver).await, Some(Command::Activate { seq: 1 })));
    assert!(matches!(next(&mut receiver).await, Some(Command::Standby { seq: 2 })));
    assert!(matches!(next(&mut receiver).await, Some(Command::Canary { seq: 3, permille: 50 })));
    let Some(Command::Drain { seq: 4, timeout, spread: Some(spread) }) = next(&mut receiver).await else { panic!() };
    assert_eq!((timeout, spread), (Duration::from_secs(2), Duration::from_millis(100)));
    assert!(matches!(next(&mut receiver).await, Some(Command::Undrain { seq: 5 })));
    assert!(matches!(next(&mut receiver).await, Some(Command::Alone)));
    assert!(matches!(next(&mut receiver).await, Some(Command::Reload)));
    assert!(matches!(next(&mut receiver).await, Some(Command::Gro { on: true })));
    let Some(Command::Heir(heirs)) = next(&mut receiver).await else { panic!() };
    let [first, second] = &heirs[..] else { panic!("{heirs:?}") };
    assert_eq!((first.generation, &first.key, first.ledger.is_none()), (Generation(1), &key, true));
    assert_eq!((second.generation, &second.key, &second.routes[..]), (Generation(2), &key, &[route][..]));
    assert!(matches!(second.ledger, Some(Ok(_))));
    let Some(Command::Link { generation: Generation(2), mut stream }) = next(&mut receiver).await else { panic!() };
    std::io::Write::write_all(&mut peer, b"x").unwrap();
    std::io::Read::read_exact(&mut stream, &mut [0]).unwrap();
    let Some(Command::Counters { speaks: true, settled: true, generations, gone }) = next(&mut receiver).await else {
        panic!()
    };
    assert_eq!((generations, gone), (vec![stats.clone()], stats.stats));
}

#[tokio::test]
async fn every_report_arrives_as_sent() {
    let (supervisor, sender, _receiver) = adopted_child().await;
    sender.starting(Duration::from_secs(3));
    sender.keep("identity", b"pem").unwrap();
    sender.ready();
    sender.ack(7);
    sender.unhealthy("first line\nsecond");
    sender.failed(&"é".repeat(3_000));
    assert_eq!(supervisor.message().await, FromChild::Starting { more_ms: 3_000 });
    let Some((FromChild::Keep { name }, fds)) = supervisor.recv().await else { panic!("no keep") };
    assert_eq!((&*name, fds.len()), ("identity", 1));
    assert_eq!(read_memfd(fds[0].as_fd(), 10).unwrap().as_slice(), b"pem");
    assert_eq!(supervisor.message().await, FromChild::Ready);
    assert_eq!(supervisor.message().await, FromChild::Ack { seq: 7 });
    assert_eq!(supervisor.message().await, FromChild::Unhealthy { reason: "first line".into() });
    assert_eq!(supervisor.message().await, FromChild::Failed { error: "é".repeat(2_048) });
}

#[tokio::test]
async fn what_can_not_be_kept_is_refused() {
    let (_supervisor, sender, _receiver) = adopted_child().await;
    for name in ["", "A", "a/b", &"a".repeat(65)] {
        assert!(matches!(sender.keep(name, b""), Err(KeepError::Name(_))), "{name:?}");
    }
    assert!(matches!(sender.keep("a", &vec![0; (1 << 20) + 1]), Err(KeepError::TooLong(_))));
    assert!(sender.keep("a", &vec![0; 1 << 20]).is_ok());
}

#[tokio::test]
async fn counters_that_do_not_fit_go_without_traffic() {
    let (supervisor, sender, _receiver) = adopted_child().await;
    let traffic = [("x".to_owned(), "y".repeat(70_000).into())].into_iter().collect();
    sender.stats(Stats { sessions: 5, traffic, ..Stats::default() });
    assert_eq!(supervisor.message().await, FromChild::Stats(Stats { sessions: 5, ..Stats::default() }));
}

#[tokio::test]
async fn what_is_not_understood_is_answered_and_not_fatal() {
    let (supervisor, _sender, mut receiver) = adopted_child().await;
    let raw = |bytes: &[u8]| supervisor.0.get_ref().send_raw(bytes, &[]).unwrap();
    raw(br#"{"type":"dance"}"#);
    raw(br#"{"type":"drain","seq":"one"}"#);
    raw(b"garbage");
    // Without, or with the wrong, descriptors.
    let heir = ToChild::Heir { generations: vec![Generation(2)], ledgers: vec![] };
    supervisor.send(&heir, &[]);
    supervisor.send(&heir, &[sealed_memfd("key", b"short").unwrap()]);
    supervisor.send(&ToChild::Link { generation: Generation(2) }, &[udp()]);
    supervisor.send(&ToChild::Refused { error: "too late".into() }, &[]);
    // Answering this one could go on for ever.
    supervisor.send(&ToChild::Unsupported { message: "stats".into() }, &[]);
    supervisor.send(&ToChild::Alone, &[]);

    assert!(matches!(next(&mut receiver).await, Some(Command::Alone)));
    for expected in ["dance", "drain", "", "heir", "heir", "link", "refused"] {
        assert_eq!(supervisor.message().await, FromChild::Unsupported { message: expected.into() });
    }
}

/// A supervisor that hangs must not hang its children, and gets every ack and the newest counters once it is back.
#[tokio::test]
async fn a_full_channel_delays_acks_and_keeps_the_newest_counters_only() {
    let (supervisor, sender, mut receiver) = adopted_child().await;
    const ACKS: u64 = 5_000;
    for seq in 0..ACKS {
        sender.ack(seq);
        sender.stats(Stats { sessions: seq, ..Stats::default() });
    }
    let listening = tokio::spawn(async move { receiver.next().await });
    let (mut acks, mut stats) = (Vec::new(), Vec::new());
    while acks.len() < usize::try_from(ACKS).unwrap() || stats.last() != Some(&(ACKS - 1)) {
        let message = supervisor.message().await;
        if let FromChild::Ack { seq } = message {
            acks.push(seq);
        } else if let FromChild::Stats(counters) = message {
            stats.push(counters.sessions);
        }
    }
    assert!(acks.iter().copied().eq(0..ACKS), "every ack, in order");
    assert!(stats.is_sorted() && stats.len() < usize::try_from(ACKS).unwrap() / 2, "{} counters", stats.len());
    listening.abort();
}

#[tokio::test]
async fn a_dead_supervisor_reads_as_none_and_hurts_no_sender() {
    let (supervisor, sender, mut receiver) = adopted_child().await;
    supervisor.send(&ToChild::Alone, &[]);
    drop(supervisor);
    sender.ready();
    sender.keep("identity", b"pem").unwrap();
    assert!(matches!(next(&mut receiver).await, Some(Command::Alone)));
    assert!(next(&mut receiver).await.is_none());
    assert!(next(&mut receiver).await.is_none());
    sender.ack(1);
}
