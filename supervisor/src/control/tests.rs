//! The wire format of the control socket, and the words around it.

use super::server::{Asked, Server};
use super::*;
use protocol::exit;
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

#[test]
fn requests_are_one_object_with_optional_fields() {
    let parse = |text: &str| serde_json::from_str::<Request>(text).ok();
    assert_eq!(parse(r#"{"request":"status"}"#), Some(Request::Status));
    assert_eq!(parse(r#"{"request":"upgrade"}"#), Some(Request::Upgrade { evict_oldest: false }));
    assert_eq!(
        parse(r#"{"request":"upgrade","evict_oldest":true,"of a later version":1}"#),
        Some(Request::Upgrade { evict_oldest: true })
    );
    assert_eq!(parse(r#"{"request":"rollback"}"#), Some(Request::Rollback));
    assert_eq!(parse(r#"{"request":"dance"}"#), None);
    assert_eq!(parse("[]"), None);
}

#[test]
fn outcomes_become_replies() {
    let reply = |outcome| serde_json::to_value(Reply::from(outcome)).expect("JSON");
    assert_eq!(reply(Outcome::Done { active: Generation(2) }), json!({"reply": "done", "active": 2}));
    let failed = reply(Outcome::Failed { generation: Generation(3), reason: "x".to_owned() });
    assert_eq!(failed, json!({"reply": "failed", "generation": 3, "reason": "x"}));
    let too_many = Deny::TooMany { oldest: Generation(4), sessions: 7, left: Duration::from_secs(190) };
    let denied = reply(Outcome::Denied(too_many));
    assert_eq!(denied["reason"], "too_many");
    let message = denied["message"].as_str().expect("text");
    assert!(message.contains("oldest, 4, has 7 sessions left and ends in 3 m 10 s"), "{message}");
}

fn generation(number: u32, state: &str, sessions: u64, deadline: Option<u64>) -> GenerationStatus {
    GenerationStatus {
        generation: Generation(number),
        state: state.to_owned(),
        pid: Some(100 + number),
        program: None,
        deadline_ms: deadline.map(|seconds| seconds * 1_000),
        sessions,
        setup: 0,
        handshakes: 0,
        told: 0,
        left: 0,
        forced: 0,
        foreign: 0,
        unhealthy: None,
        unreachable: false,
        traffic: serde_json::Map::new(),
    }
}

#[test]
fn the_sentence_says_who_does_what_newest_first() {
    let both = [generation(6, "draining", 41, Some(190)), generation(7, "active", 812, None)];
    assert_eq!(sentence(&both, None), "generation 7 active, 812 sessions; generation 6 draining, 41 left, 3 m 10 s");
    assert_eq!(sentence(&[generation(1, "starting", 0, Some(30))], None), "generation 1 starting, 30 s");
    assert_eq!(sentence(&[], Some("failed: x")), "no generation; failed: x");
    assert_eq!(sentence(&[generation(1, "active", 1, None)], None), "generation 1 active, 1 session");
}

#[test]
fn spans_have_at_most_two_units() {
    let cases = [(0, "0 s"), (59, "59 s"), (190, "3 m 10 s"), (7_500, "2 h 5 m"), (90_000, "1 d 1 h")];
    for (seconds, text) in cases {
        assert_eq!(span(Duration::from_secs(seconds)), text);
    }
}

fn bound() -> (TempDir, std::path::PathBuf, Server) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deep/control.sock");
    let server = Server::bind(&path).expect("bound");
    (directory, path, server)
}

#[test]
fn the_socket_is_for_its_owner_and_gone_at_the_end() {
    let (_directory, path, server) = bound();
    let mode = |path: &std::path::Path| std::fs::symlink_metadata(path).expect("exists").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().expect("a directory")), 0o700);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_path_with_a_live_supervisor_is_refused_naming_it() {
    let (_directory, path, _server) = bound();
    let failure = Server::bind(&path).expect_err("refused");
    assert_eq!(failure.status, exit::IN_USE);
    assert!(failure.message.contains(&format!("process {}", std::process::id())), "{failure}");
}

/// A supervisor that was killed leaves its socket file: the next one takes its place.
#[test]
fn a_stale_socket_is_replaced_and_another_file_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    assert!(path.exists());
    drop(Server::bind(&path).expect("the stale socket is replaced"));
    std::fs::File::create(&path).expect("made");
    assert_eq!(Server::bind(&path).expect_err("refused").status, exit::USAGE);
    assert!(path.exists());
}

#[tokio::test]
async fn a_client_gets_one_answer_per_line() {
    let (_directory, path, server) = bound();
    let (asked, mut requests) = mpsc::channel(1);
    let _running = server.serve(asked, Vec::new()).expect("served");
    tokio::spawn(async move {
        while let Some(Asked { request, reply, .. }) = requests.recv().await {
            assert_eq!(request, Request::Rollback);
            reply.send(Reply::Done { active: Generation(1) }).expect("the client waits");
        }
    });
    let stream = UnixStream::connect(&path).await.expect("connected");
    let mut stream = BufReader::new(stream);
    let lines = [r#"{"request":"rollback"}"#, "garbage", r#"{"request":"rollback"}"#];
    for (line, reply) in lines.into_iter().zip(["done", "error", "done"]) {
        stream.get_mut().write_all(format!("{line}\n").as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_line(&mut answer).await.expect("answered");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["reply"], reply);
    }
}

#[tokio::test]
async fn an_endless_request_is_refused_and_its_client_let_go() {
    let (_directory, path, server) = bound();
    let (asked, _requests) = mpsc::channel(1);
    let _running = server.serve(asked, Vec::new()).expect("served");
    let mut stream = BufReader::new(UnixStream::connect(&path).await.expect("connected"));
    stream.get_mut().write_all(&vec![b' '; MAX_REQUEST + 1]).await.expect("written");
    let mut answer = String::new();
    stream.read_line(&mut answer).await.expect("answered");
    assert!(answer.contains("at most"), "{answer}");
    assert_eq!(stream.read_line(&mut answer).await.expect("the end"), 0);
}

/// Whoever waits for an upgrade when the supervisor ends hears so.
#[tokio::test]
async fn a_request_that_is_dropped_is_answered() {
    let (_directory, path, server) = bound();
    let (asked, mut requests) = mpsc::channel(1);
    let running = server.serve(asked, Vec::new()).expect("served");
    let mut stream = BufReader::new(UnixStream::connect(&path).await.expect("connected"));
    stream.get_mut().write_all(b"{\"request\":\"upgrade\"}\n").await.expect("written");
    drop(requests.recv().await.expect("asked"));
    running.answered().await;
    let mut answer = String::new();
    stream.read_line(&mut answer).await.expect("answered");
    assert!(answer.contains("the supervisor ended"), "{answer}");
}

/// Whoever connects and says nothing must not keep an operator out.
#[tokio::test]
async fn silent_clients_make_room() {
    let (_directory, path, server) = bound();
    let (asked, mut requests) = mpsc::channel(1);
    let _running = server.serve(asked, Vec::new()).expect("served");
    tokio::spawn(async move {
        while let Some(Asked { reply, .. }) = requests.recv().await {
            reply.send(Reply::Done { active: Generation(1) }).expect("the client waits");
        }
    });
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(UnixStream::connect(&path).await.expect("connected"));
    }
    let mut stream = BufReader::new(UnixStream::connect(&path).await.expect("connected"));
    stream.get_mut().write_all(b"{\"request\":\"rollback\"}\n").await.expect("written");
    let mut answer = String::new();
    let answered = tokio::time::timeout(Duration::from_secs(2), stream.read_line(&mut answer)).await;
    answered.expect("in less than the patience with silent clients").expect("answered");
    assert!(answer.contains("done"), "{answer}");
}
