//! The parts of the driver that touch processes and channels, without the loop.

use super::commands;
use super::link::{Heard, Link};
use super::reap::Reaper;
use crate::cli::{Health, HealthUrl};
use crate::core::Event;
use protocol::channel::{Channel, Received, sealed_memfd};
use protocol::message::{FromChild, Generation, ToChild};
use std::future::poll_fn;
use std::os::fd::AsFd as _;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(10);

fn pair() -> (Link, Channel) {
    let (ours, theirs) = Channel::pair().expect("a pair");
    (Link::new(ours).expect("watched"), theirs)
}

async fn hear(link: &mut Link) -> Heard {
    timeout(DEADLINE, poll_fn(|cx| link.poll(cx))).await.expect("something is heard within 10 s")
}

#[tokio::test]
async fn messages_are_heard_in_order_and_then_the_end() {
    let (mut link, child) = pair();
    child.send(&FromChild::Ready, &[]).expect("sent");
    child.send_raw(b"nonsense", &[]).expect("sent");
    child.send(&FromChild::Ack { seq: 7 }, &[]).expect("sent");
    drop(child);
    assert!(matches!(hear(&mut link).await, Heard::Message(FromChild::Ready, fds) if fds.is_empty()));
    assert!(matches!(hear(&mut link).await, Heard::Garbage(_)));
    assert!(matches!(hear(&mut link).await, Heard::Message(FromChild::Ack { seq: 7 }, _)));
    assert!(matches!(hear(&mut link).await, Heard::End(_)));
}

#[tokio::test]
async fn an_unknown_message_is_answered_and_not_heard() {
    let (mut link, child) = pair();
    child.send_raw(br#"{"type":"of_a_later_version"}"#, &[]).expect("sent");
    child.send(&FromChild::Ready, &[]).expect("sent");
    assert!(matches!(hear(&mut link).await, Heard::Message(FromChild::Ready, _)));
    let Ok(Some(Received::Message { message, .. })) = child.recv::<ToChild>() else { panic!("an answer") };
    assert_eq!(message, ToChild::Unsupported { message: "of_a_later_version".to_owned() });
}

/// A child that does not read costs a bounded queue, and then its channel; what it reads late is in order.
#[tokio::test]
async fn a_full_channel_queues_and_then_is_lost() {
    let (mut link, child) = pair();
    let memfd = sealed_memfd("test", b"x").expect("made");
    let mut sent = 0;
    let error = loop {
        let message = ToChild::Refused { error: format!("{sent} {}", "x".repeat(20_000)) };
        match link.send(message, &[memfd.as_fd()]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 1_000, "the queue is bounded");
    };
    assert!(error.contains("does not read"), "{error}");
    let mut read = 0;
    let reading = poll_fn(|cx| {
        while let Ok(Some(Received::Message { message, fds })) = child.recv::<ToChild>() {
            let ToChild::Refused { error } = message else { panic!("what was sent") };
            assert!(error.starts_with(&format!("{read} ")), "in order");
            assert_eq!(fds.len(), 1);
            read += 1;
        }
        assert!(link.poll(cx).is_pending());
        // What the link has just sent can be read at once.
        cx.waker().wake_by_ref();
        if read == sent { Poll::Ready(()) } else { Poll::Pending }
    });
    timeout(DEADLINE, reading).await.expect("all arrive");
}

/// `failed` is often said in the moment of the exit: the exit must not be seen first.
#[tokio::test]
async fn last_words_are_read_without_waiting_for_the_loop() {
    let (mut link, child) = pair();
    child.send(&FromChild::Failed { error: "no certificate".to_owned() }, &[]).expect("sent");
    drop(child);
    let words = link.last_words();
    assert!(matches!(&words[..], [Heard::Message(FromChild::Failed { .. }, _), Heard::End(_)]), "{words:?}");
    assert!(link.last_words().is_empty());
}

#[tokio::test]
async fn a_health_url_is_well_with_2xx_alone() {
    let (events, mut results) = mpsc::channel(1);
    let server = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = server.local_addr().expect("bound").port();
    let url =
        HealthUrl { authority: format!("127.0.0.1:{port}"), host: "127.0.0.1".to_owned(), port, path: "/h".into() };
    let _probing = commands::probe(Health::Url(url), Generation(2), Reaper::default(), events);
    for (answer, well) in [("204 No Content", true), ("503 Service Unavailable", false), ("200 OK", true), ("", false)]
    {
        let (mut stream, _) = timeout(DEADLINE, server.accept()).await.expect("asked").expect("accepted");
        let mut request = [0; 1_024];
        let length = stream.read(&mut request).await.expect("read");
        assert!(request[..length].starts_with(b"GET /h HTTP/1."), "a plain GET");
        if !answer.is_empty() {
            let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.expect("written");
        }
        drop(stream);
        let Some(Event::Probed { generation: Generation(2), result }) = results.recv().await else { panic!("probed") };
        assert_eq!(result.is_ok(), well, "{answer}: {result:?}");
    }
}
