//! Who is refused, and how each transport says it.

use crate::client::{Client, Via};
use crate::process::Relay;
use moq_net::Version;

fn version() -> Version {
    "moq-lite-06".parse().expect("a version")
}

/// The refusal must be final to the client: one that looks like an outage is tried again for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_without_rights_is_refused_with_a_final_answer() {
    let mut relay = Relay::start(&["--auth-public", "anon/**"]);
    let address = relay.quic();
    for path in ["/other", "/anonymous/room", "/anon?jwt=eyJ"] {
        let refused = Client::connect(Via::WebTransport(address, path), version()).await.err().expect("refused");
        let says_401 = refused.chain().any(|cause| cause.to_string().contains("401"));
        assert!(says_401, "{path}: {refused:#}");
    }
    let session = Client::connect(Via::Quic(address, "/other"), version()).await;
    let error = match session {
        Ok(client) => client.closed().await,
        Err(error) => error.downcast::<moq_net::Error>().expect("a MoQ error"),
    };
    assert!(error.to_string().contains("unauthorized"), "{error:?}");
    for via in [Via::WebTransport(address, "/anon/room"), Via::Quic(address, "/anon"), Via::Quic(address, "/")] {
        Client::connect(via, version()).await.expect("admitted");
    }
}

/// The socket's mode lets everybody connect; the list is what decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_peer_that_is_not_on_the_list_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("relay.sock");
    let socket = path.to_str().expect("UTF-8");
    let us = nix::unistd::getuid().as_raw();
    for (uid, admitted) in [(us, true), (us + 1, false)] {
        let uid = uid.to_string();
        let args = ["--auth-public", "**", "--listen-unix-bind", socket, "--listen-unix-allow-uid", &uid];
        let mut relay = Relay::start(&args);
        relay.line("listening for unix");
        assert_eq!(Client::connect(Via::Unix(&path), version()).await.is_ok(), admitted, "uid {uid}");
    }
}
