//! What a child is handed, and what it does not take.

use super::*;

#[tokio::test]
async fn sockets_keys_and_kept_secrets_arrive_over_several_messages() {
    let (supervisor, child) = pair();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let unix = UnixListener::bind(&path).unwrap();

    let mut first = adopt(vec![adopted("web", Kind::Tcp, &[0]), adopted("quic", Kind::Quic, &[4, 5])]);
    first.kept = vec!["identity".into()];
    first.more = true;
    let identity = sealed_memfd("identity", b"pem").unwrap();
    supervisor.send(&ToChild::Adopt(first), &[keys_fd(), identity, tcp(), udp(), udp()]);
    let second = adopt(vec![adopted("quic", Kind::Quic, &[6]), adopted("local", Kind::Unix, &[0])]);
    supervisor.send(&ToChild::Adopt(second), &[udp(), unix.into()]);

    let wanted = vec![
        Wanted::quic("quic", "127.0.0.1:0", 3),
        Wanted::tcp("web", "127.0.0.1:0"),
        Wanted::unix("local", path.to_str().unwrap(), 0o600),
    ];
    let (_link, adoption) = child.hello(hello(wanted.clone())).await.unwrap();

    let FromChild::Hello(said) = supervisor.message().await else { panic!("no hello") };
    assert_eq!(said.listeners, wanted);
    assert_eq!(adoption.generation, Generation(3));
    assert_eq!(*adoption.keys, keys());
    assert_eq!(adoption.kept["identity"].as_slice(), b"pem");
    assert_eq!(adoption.drain, DrainSettings { timeout: Duration::from_millis(1_500), spread: None });
    assert!(!adoption.gro && adoption.older_live);
    let names: Vec<_> = adoption.listeners.iter().map(|listener| &*listener.name).collect();
    assert_eq!(names, ["quic", "web", "local"], "in the order of hello");
    let Socket::Quic(members) = &adoption.listeners[0].socket else { panic!("not QUIC") };
    assert_eq!(members.iter().map(|member| member.id.get()).collect::<Vec<_>>(), [4, 5, 6]);
    assert!(matches!(adoption.listeners[1].socket, Socket::Tcp(_)));
    assert!(matches!(adoption.listeners[2].socket, Socket::Unix(_)));
}

#[tokio::test]
async fn a_refusal_is_an_error_with_its_reason() {
    let (supervisor, child) = pair();
    supervisor.send(&ToChild::Refused { error: "too many members".into() }, &[]);
    let error = child.hello(hello(vec![])).await.unwrap_err();
    assert!(matches!(&error, Error::Refused { .. }));
    assert!(error.to_string().contains("too many members"), "{error}");
}

#[tokio::test]
async fn a_supervisor_that_is_gone_is_an_error() {
    let (supervisor, child) = pair();
    drop(supervisor);
    assert!(matches!(child.hello(hello(vec![])).await, Err(Error::Gone)));
}

#[tokio::test]
async fn what_comes_before_adopt_is_kept_or_answered() {
    let (supervisor, child) = pair();
    supervisor.0.get_ref().send_raw(br#"{"type":"dance"}"#, &[]).unwrap();
    supervisor.send(&ToChild::Reload, &[]);
    supervisor.send(&ToChild::Adopt(adopt(vec![])), &[keys_fd()]);
    let (link, _) = child.hello(hello(vec![])).await.unwrap();
    assert!(matches!(supervisor.message().await, FromChild::Hello(_)));
    assert_eq!(supervisor.message().await, FromChild::Unsupported { message: "dance".into() });
    assert!(matches!(link.split().1.next().await, Some(Command::Reload)));
}

/// Each would show up much later, and as something else.
#[tokio::test]
async fn a_wrong_adopt_is_refused_by_name() {
    let quic = |members: &[u16]| adopted("quic", Kind::Quic, members);
    let unbound = || OwnedFd::from(UnixStream::pair().unwrap().0);
    let connected_tcp = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        OwnedFd::from(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    };
    let version = Adopt { protocol: 2, ..adopt(vec![]) };
    let zero = Adopt { generation: Generation(0), ..adopt(vec![]) };
    let high = Adopt { generation: Generation(65_536), ..adopt(vec![]) };
    let kept = Adopt { kept: vec!["identity".into()], ..adopt(vec![quic(&[4])]) };

    let cases: Vec<(Adopt, Vec<OwnedFd>, &str)> = vec![
        (version, vec![keys_fd()], "version 2"),
        (zero, vec![keys_fd()], "generation 0"),
        (high, vec![keys_fd()], "generation 65536"),
        (adopt(vec![]), vec![], "1 descriptors are listed, 0 came"),
        (adopt(vec![quic(&[4])]), vec![keys_fd()], "2 descriptors are listed, 1 came"),
        (adopt(vec![quic(&[4])]), vec![keys_fd(), udp(), udp()], "2 descriptors are listed, 3 came"),
        (adopt(vec![quic(&[4])]), vec![udp(), udp()], "memfd"),
        (adopt(vec![quic(&[4])]), vec![sealed_memfd("keys", b"x").unwrap(), udp()], "moqkeys"),
        (kept, vec![keys_fd(), udp(), udp()], "kept secret \"identity\""),
        (adopt(vec![quic(&[4_096])]), vec![keys_fd(), udp()], "member 4096"),
        (adopt(vec![quic(&[4, 4])]), vec![keys_fd(), udp(), udp()], "member 4"),
        (adopt(vec![quic(&[4]), quic(&[4])]), vec![keys_fd(), udp(), udp()], "member 4"),
        (adopt(vec![quic(&[])]), vec![keys_fd()], "listener \"quic\" is missing"),
        (adopt(vec![]), vec![keys_fd()], "listener \"quic\" is missing"),
        (adopt(vec![quic(&[4])]), vec![keys_fd(), tcp()], "\"quic\" is not a UDP socket"),
        (adopt(vec![quic(&[4])]), vec![keys_fd(), unbound()], "\"quic\" is not a UDP socket"),
        (adopt(vec![quic(&[4])]), vec![keys_fd(), udp()], "listener \"web\" is missing"),
        (adopt(vec![adopted("web", Kind::Tcp, &[0])]), vec![keys_fd(), udp()], "\"web\" is not a listening TCP"),
        (adopt(vec![adopted("web", Kind::Tcp, &[0])]), vec![keys_fd(), connected_tcp()], "\"web\" is not a listening"),
        (adopt(vec![adopted("web", Kind::Tcp, &[0, 0])]), vec![keys_fd(), tcp(), tcp()], "2 sockets instead of one"),
        (adopt(vec![adopted("web", Kind::Quic, &[4])]), vec![keys_fd(), udp()], "\"web\" of kind quic was not asked"),
        (adopt(vec![adopted("other", Kind::Tcp, &[0])]), vec![keys_fd(), tcp()], "\"other\" of kind tcp was not asked"),
    ];
    for (adopt, fds, expected) in cases {
        let (supervisor, child) = pair();
        let shown = format!("{adopt:?}");
        supervisor.send(&ToChild::Adopt(adopt), &fds);
        let wanted = vec![Wanted::quic("quic", "127.0.0.1:0", 1), Wanted::tcp("web", "127.0.0.1:0")];
        let error = child.hello(hello(wanted)).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{shown}: {error}");
    }
}

#[tokio::test]
async fn a_malformed_adopt_is_an_error_and_not_waited_out() {
    let (supervisor, child) = pair();
    supervisor.0.get_ref().send_raw(br#"{"type":"adopt","protocol":"one"}"#, &[]).unwrap();
    let error = child.hello(hello(vec![])).await.unwrap_err();
    assert!(error.to_string().contains("adopt"), "{error}");
}
