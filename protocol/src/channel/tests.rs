use super::*;
use crate::message::{FromChild, Stats, ToChild};
use proptest::prelude::*;
use std::fs::File;
use std::io::Read;

fn text(channel: &Channel) -> String {
    String::from_utf8(channel.recv_raw().unwrap().unwrap().bytes).unwrap()
}

#[test]
fn a_message_arrives_with_its_descriptors_in_order() {
    let (one, other) = Channel::pair().unwrap();
    let memfds: Vec<_> = (0..MAX_FDS).map(|i| sealed_memfd("test", i.to_string().as_bytes()).unwrap()).collect();
    let borrowed: Vec<_> = memfds.iter().map(AsFd::as_fd).collect();
    let sent = FromChild::Keep { name: "a".into() };
    one.send(&sent, &borrowed).unwrap();

    let Some(Received::Message { message, fds }) = other.recv::<FromChild>().unwrap() else { panic!("no message") };
    assert_eq!((message, fds.len()), (sent, MAX_FDS));
    for (i, fd) in fds.iter().enumerate() {
        assert_eq!(read_memfd(fd.as_fd(), 16).unwrap().as_slice(), i.to_string().as_bytes());
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}

#[test]
fn too_many_descriptors_are_refused_before_anything_is_sent() {
    let (one, other) = Channel::pair().unwrap();
    let memfd = sealed_memfd("test", b"").unwrap();
    let error = one.send(&FromChild::Ready, &vec![memfd.as_fd(); MAX_FDS + 1]).unwrap_err();
    assert!(matches!(error, SendError::TooManyFds { fds: 254 }), "{error}");
    assert!(matches!(other.recv_raw(), Err(RecvError::WouldBlock)));
}

#[test]
fn the_longest_record_passes_and_a_longer_one_is_refused() {
    let (one, other) = Channel::pair().unwrap();
    one.send_raw(&vec![b'x'; MAX_MESSAGE], &[]).unwrap();
    assert_eq!(other.recv_raw().unwrap().unwrap().bytes.len(), MAX_MESSAGE);
    let error = one.send_raw(&vec![b'x'; MAX_MESSAGE + 1], &[]).unwrap_err();
    assert!(matches!(error, SendError::TooLong { bytes: 65_537 }), "{error}");
}

/// A peer that does not keep the limit costs one record, no descriptor, and not the channel.
#[test]
fn an_oversized_record_is_an_error_and_the_next_one_is_read() {
    let (one, other) = Channel::pair().unwrap();
    let memfd = sealed_memfd("test", b"").unwrap();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [memfd.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let long = vec![b'x'; MAX_MESSAGE + 1];
    sendmsg(one.as_fd(), &[IoSlice::new(&long)], &mut control, SendFlags::empty()).unwrap();
    one.send_raw(b"next", &[]).unwrap();

    assert!(matches!(other.recv_raw(), Err(RecvError::TooLong)));
    assert_eq!(text(&other), "next");
    drop(memfd);
}

/// MSG_CTRUNC leaves the descriptors that fitted open unless the reader closes them.
#[test]
fn descriptors_of_an_oversized_record_are_closed() {
    let (one, other) = Channel::pair().unwrap();
    let (mut reader, writer) = io::pipe().unwrap();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [writer.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let long = vec![b'x'; MAX_MESSAGE + 1];
    sendmsg(one.as_fd(), &[IoSlice::new(&long)], &mut control, SendFlags::empty()).unwrap();
    drop(writer);

    assert!(other.recv_raw().is_err());
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "no writer is left open");
}

#[test]
fn a_closed_end_reads_as_none_and_sends_as_closed() {
    let (one, other) = Channel::pair().unwrap();
    one.send(&FromChild::Failed { error: "last words".into() }, &[]).unwrap();
    drop(one);
    assert!(other.recv::<FromChild>().unwrap().is_some());
    assert!(other.recv::<FromChild>().unwrap().is_none());
    assert!(matches!(other.send(&ToChild::Alone, &[]), Err(SendError::Closed)));
}

/// The kernel reports ECONNRESET before the records that a closed peer has left.
#[test]
fn last_words_are_read_though_the_peer_left_records_unread() {
    let (child, supervisor) = Channel::pair().unwrap();
    supervisor.send(&ToChild::Alone, &[]).unwrap();
    child.send(&FromChild::Failed { error: "last words".into() }, &[]).unwrap();
    drop(child);
    assert!(matches!(
        supervisor.recv::<FromChild>().unwrap(),
        Some(Received::Message { message: FromChild::Failed { .. }, .. })
    ));
    assert!(supervisor.recv::<FromChild>().unwrap().is_none());
}

#[test]
fn a_full_channel_says_would_block_and_goes_on_once_read() {
    let (one, other) = Channel::pair().unwrap();
    let mut sent = 0;
    let error = loop {
        match one.send(&FromChild::Ack { seq: sent }, &[]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, SendError::WouldBlock), "{error}");
    other.recv::<FromChild>().unwrap().unwrap();
    while other.recv_raw().is_ok() {}
    one.send(&FromChild::Ready, &[]).unwrap();
}

#[test]
fn an_unknown_message_is_told_apart_from_a_malformed_one() {
    let (one, other) = Channel::pair().unwrap();
    let recv = |bytes: &[u8]| {
        one.send_raw(bytes, &[]).unwrap();
        other.recv::<ToChild>()
    };
    assert!(
        matches!(recv(br#"{"type":"dance","x":1}"#), Ok(Some(Received::Unknown { message })) if message == "dance")
    );
    assert!(matches!(
        recv(br#"{"type":"activate","seq":3,"later":[1]}"#),
        Ok(Some(Received::Message { message: ToChild::Activate { seq: 3 }, .. }))
    ));

    let missing = recv(br#"{"type":"activate"}"#).unwrap_err();
    assert!(matches!(&missing, RecvError::Malformed { message: Some(kind), .. } if kind == "activate"));
    assert!(missing.to_string().contains("activate") && missing.to_string().contains("seq"), "{missing}");
    for garbage in [&b"{"[..], b"[]", b"[\"alone\"]", b"\xff\xfe", b"{\"type\":7}", b"null"] {
        assert!(matches!(recv(garbage), Err(RecvError::Malformed { message: None, .. })));
    }
}

#[test]
fn only_a_seqpacket_socket_can_be_a_channel() {
    let (stream, _) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(matches!(Channel::from_fd(stream.into()), Err(InvalidChannel::Kind(_))));
    assert!(matches!(Channel::from_fd(File::open("/dev/null").unwrap().into()), Err(InvalidChannel::Kind(_))));
    let (end, _other) = Channel::pair().unwrap();
    assert!(Channel::from_fd(end.into()).is_ok());
}

#[test]
fn a_memfd_is_sealed_and_read_within_its_limit() {
    let memfd = sealed_memfd("test", b"secret").unwrap();
    assert_eq!(read_memfd(memfd.as_fd(), 6).unwrap().as_slice(), b"secret");
    assert!(matches!(read_memfd(memfd.as_fd(), 5), Err(MemfdError::TooLong { bytes: 6, limit: 5 })));
    assert!(io::Write::write_all(&mut File::from(memfd), b"x").is_err());
}

/// Reading a fifo, a socket or a file on a hung file system would stop the supervisor.
#[test]
fn what_is_not_a_memfd_is_not_read() {
    let (pipe, _writer) = io::pipe().unwrap();
    let (socket, _peer) = Channel::pair().unwrap();
    let null = File::open("/dev/null").unwrap();
    for fd in [pipe.as_fd(), socket.as_fd(), null.as_fd()] {
        assert!(matches!(read_memfd(fd, 10), Err(MemfdError::Kind)));
    }
}

proptest! {
    #[test]
    fn every_stats_message_comes_back_as_sent(sessions: u64, handshakes: u64, told: u64, name in "\\PC*", value: i64) {
        let (one, other) = Channel::pair().unwrap();
        let traffic = [(name, value.into())].into_iter().collect();
        let sent = FromChild::Stats(Stats { sessions, handshakes, told, traffic, ..Stats::default() });
        one.send(&sent, &[]).unwrap();
        let Some(Received::Message { message, .. }) = other.recv::<FromChild>().unwrap() else { panic!("no message") };
        prop_assert_eq!(message, sent);
    }

    #[test]
    fn no_record_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
        let (one, other) = Channel::pair().unwrap();
        one.send_raw(&bytes, &[]).unwrap();
        let _ = other.recv::<ToChild>();
    }
}
