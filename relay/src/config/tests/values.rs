//! Values that can't be used, and combinations.

use super::{Given, LEAST};
use crate::config::values;
use crate::config::{Request, Size};

#[test]
fn a_bad_value_is_named_with_its_place_and_the_remedy() {
    for (flag, value, expected) in [
        ("drain-timeout", "ten", "\"ten\" is not a duration; write a number and a unit, as in 10s or 500ms"),
        ("drain-timeout", "10", "\"10\" is not a duration; write a number and a unit"),
        ("listen", "443", "\"443\" is not an address; write HOST:PORT"),
        ("listen", "::1:443", "\"::1:443\" is not an address"),
        ("listen", "localhost:70000", "\"localhost:70000\" is not an address"),
        ("listen", ":443", "\":443\" is not an address"),
        (
            "listen-version",
            "moq-lite-99",
            "\"moq-lite-99\" is not a version; this relay speaks moq-lite-07-wip, moq-lite-06,",
        ),
        ("listen-preferred-v4", "0.0.0.0:443", "\"0.0.0.0:443\" is no IPv4 address that a client can send to"),
        ("listen-preferred-v4", "[2001:db8::1]:443", "\"[2001:db8::1]:443\" is no IPv4 address"),
        ("listen-preferred-v6", "[2001:db8::1]:0", "\"[2001:db8::1]:0\" is no IPv6 address"),
        ("listen-tcp-bind", "localhost:1", "\"localhost:1\" is not an address; write IP:PORT"),
        ("listen-unix-allow-uid", "root", "\"root\" is not a user id"),
        ("quic-max-streams", "0", "\"0\" is not a number of streams from 1 to 2^60"),
        ("quic-receive-window", "64MiB", "\"64MiB\" is not a number of bytes from 1 to 2^62 - 1"),
        ("quic-send-window", "0", "\"0\" is not a number of bytes"),
        ("quic-idle-timeout", "11y", "\"11y\" is too long; give at most ten years"),
        ("drain-timeout", "99999999999999999999y", "\"99999999999999999999y\" is not a duration"),
        ("quic-gso", "on", "\"on\" is neither true nor false"),
        ("quic-congestion-control", "reno", "\"reno\" is not a congestion controller; use delay or loss"),
        ("connect-bind", "localhost:0", "\"localhost:0\" is not an address; write IP:PORT"),
        ("connect-version", "moq-lite-99", "\"moq-lite-99\" is not a version"),
        ("connect-tls-fingerprint", "abc", "\"abc\" is not a SHA-256 fingerprint; write 64 hexadecimal digits"),
        ("backoff-initial", "1ms", "\"1ms\" is too short; give at least 10ms"),
        ("backoff-multiplier", "0", "\"0\" is not a whole factor of at least 1"),
        ("goaway-redirect", "always", "\"always\" is not a policy; use same-host, follow or ignore"),
        ("goaway-restart", "never", "\"never\" is not a policy; use redial, wait or handoff"),
        ("cluster-connect", "relay.test", "peer 1: it is not a URL; write it in full, as in https://relay.example/"),
        ("cluster-connect", "https://a.test,tcp://b.test", "peer 2: its scheme is tcp, which is not dialed"),
        ("cluster-connect", "https://a.test?cost=x", "peer 1: its cost is not one whole number"),
        ("cluster-connect", "https://a.test,https://a.test/?jwt=x", "peer 2: the same relay is listed before it"),
        ("cluster-node", "a.test", "it is not a URL; write it in full"),
        ("cluster-id", "0", "\"0\" is not a node's number from 1 to 2^62 - 1"),
        ("cluster-id", "4611686018427387904", "\"4611686018427387904\" is not a node's number"),
        ("cluster-max-hops", "33", "\"33\" is not a number of hops from 1 to 32"),
        ("auth-public-publish", "anon", "\"anon\" has no wildcard and so names one broadcast; write \"anon/**\""),
        ("auth-public-publish", "/anon", "\"/anon\" is not a pattern (empty path segment)"),
        ("cache-capacity", "lots", "\"lots\" is not a size; write bytes"),
        ("cache-capacity", "0%", "\"0%\" is not above 0% and at most 100%"),
        ("cache-headroom", "0", "\"0\" keeps nothing free"),
        ("runtime-workers", "254", "\"254\" is not a number of workers from 0 to 253"),
        ("runtime-workers", "-1", "\"-1\" is not a number of workers"),
        ("log-level", "loud", "\"loud\" is not a level; use error, warn, info, debug or trace"),
    ] {
        let error = Given::flags(&LEAST).and_flags(&[&format!("--{flag}={value}")]).error();
        assert!(error.starts_with(&format!("--{flag}: {expected}")), "{error}");
    }
}

#[test]
fn the_place_of_a_bad_value_is_the_place_where_it_was_given() {
    let error = Given::flags(&LEAST).and_variable("MOQ_LISTEN_TIMEOUT", "soon").error();
    assert!(error.starts_with("MOQ_LISTEN_TIMEOUT: \"soon\" is not a duration"), "{error}");
    let error = Given::flags(&LEAST).and_file("[listen]\n\ntimeout = \"soon\"\n").error();
    assert!(error.starts_with("relay.toml:3: listen.timeout: \"soon\" is not a duration"), "{error}");
}

#[test]
fn a_value_of_another_type_in_the_file_is_refused() {
    for (file, expected) in [
        ("drain_timeout = 10\n", "relay.toml:1: drain_timeout: expected a string, found integer"),
        ("[quic]\nmax_streams = \"1\"\n", "relay.toml:2: quic.max_streams: expected an integer, found string"),
        ("[quic]\ngso = 1\n", "relay.toml:2: quic.gso: expected true or false, found integer"),
        (
            "[auth]\npublic = [1]\n",
            "relay.toml:2: auth.public: expected a string or an array of strings, found integer",
        ),
        (
            "[listen.unix.allow]\nuid = [\"root\"]\n",
            "relay.toml:2: listen.unix.allow.uid: expected an integer or an array of integers, found string",
        ),
    ] {
        assert_eq!(Given::flags(&LEAST).and_file(file).error(), expected);
    }
}

#[test]
fn certificates_and_keys_must_pair_and_something_must_be_served() {
    let open = ["--auth-public", "**"];
    let error = Given::flags(&open).error();
    assert!(error.starts_with("there is no certificate to serve: give --listen-tls-cert"), "{error}");
    let error = Given::flags(&open).and_flags(&["--listen-tls-cert", "a,b", "--listen-tls-key", "k"]).error();
    assert_eq!(
        error,
        "--listen-tls-cert names 2 files and --listen-tls-key 1: give one key for each certificate, in the same order"
    );
}

#[test]
fn a_relay_that_admits_no_one_is_refused() {
    let error = Given::flags(&["--listen-tls-generate", "localhost"]).error();
    assert!(error.starts_with("no one may publish or subscribe: give --auth-public PATTERN"), "{error}");
}

#[test]
fn sizes_are_exact() {
    for (text, expected) in [
        ("0", 0),
        ("1073741824", 1 << 30),
        ("512MB", 512_000_000),
        ("8 GiB", 8 << 30),
        ("1.5kib", 1_536),
        ("0.1kB", 100),
        ("16777215TiB", 16_777_215 << 40),
    ] {
        assert_eq!(values::size(text), Ok(Size::Bytes(expected)), "{text}");
    }
    for text in ["", "GiB", "1.2.3", "-1", "1e3", "16777216TiB", "1 parsec", "NaN%", "101%"] {
        assert!(values::size(text).is_err(), "{text}");
    }
}

#[test]
fn help_names_every_setting_and_version_the_program() {
    let Ok(Request::Print(help)) = Given::flags(&["--help"]).read() else { panic!("no help") };
    for setting in crate::config::catalog::ALL {
        assert!(help.contains(&format!("--{}", setting.flag)) && help.contains(setting.env), "{}", setting.key);
    }
    let Ok(Request::Print(version)) = Given::flags(&["--version"]).read() else { panic!("no version") };
    assert_eq!(version.trim(), format!("moq-relay {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_is_trusted_must_not_contradict_itself() {
    let print = "00".repeat(32);
    for (flags, culprit) in [
        (&["--connect-tls-insecure", "--connect-tls-root", "r"][..], "--connect-tls-insecure trusts any certificate"),
        (&["--connect-tls-insecure", "--connect-tls-fingerprint", &print], "--connect-tls-insecure trusts any"),
        (&["--connect-tls-root", "r", "--connect-tls-fingerprint", &print], "--connect-tls-fingerprint trusts"),
        (&["--connect-tls-system-roots=false"], "--connect-tls-system-roots=false leaves no one to trust"),
        (&["--connect-tls-cert", "c"], "--connect-tls-cert and --connect-tls-key go together"),
    ] {
        let error = Given::flags(&LEAST).and_flags(flags).error();
        assert!(error.starts_with(culprit), "{error}");
    }
    Given::flags(&LEAST).and_flags(&["--connect-tls-system-roots=false", "--connect-tls-root", "r"]).config();
}

/// Two generations can't dial from one port; without anybody to dial it does not matter.
#[test]
fn a_fixed_port_to_dial_from_is_refused_together_with_peers() {
    let fixed = Given::flags(&LEAST).and_flags(&["--connect-bind", "[::]:4444"]);
    let peers = ["--cluster-connect", "https://a.test"];
    let error = fixed.clone().and_flags(&peers).error();
    assert!(error.starts_with("--connect-bind [::]:4444 is a fixed port"), "{error}");
    fixed.config();
    fixed.and_flags(&peers).and_flags(&["--cluster-node", "https://a.test/"]).config();
    Given::flags(&LEAST).and_flags(&["--connect-bind", "[::]:0"]).and_flags(&peers).config();
}

#[test]
fn a_peer_is_a_url_or_a_table_in_the_file_and_no_error_shows_its_token() {
    for file in [
        "[cluster]\nconnect = \"https://a.test?cost=3&jwt=secret\"\n",
        "[cluster]\nconnect = [\"https://a.test?cost=3&jwt=secret\", \"https://a.test/?jwt=secret&cost=3\"]\n",
        "[cluster]\nconnect = { url = \"https://a.test\", cost = 3, token = \"secret\" }\n",
        "[[cluster.connect]]\nurl = \"https://a.test\"\ncost = 3\negress = 3\ntoken = \"secret\"\n",
    ] {
        let peers = Given::flags(&LEAST).and_file(file).config().cluster.peers;
        let [peer] = &peers[..] else { panic!("{file}: {peers:?}") };
        assert_eq!((peer.url(None).as_str(), peer.cost()), ("https://a.test/?jwt=secret", Some(3)), "{file}");
    }
    for (file, expected) in [
        ("connect = \"secret.test\"", "relay.toml:2: cluster.connect: peer 1: it is not a URL"),
        (
            "connect = [{ url = \"https://a.test?jwt=secret\", token = \"secret\" }]",
            "peer 1: it has a token in its URL",
        ),
        ("connect = [{ url = \"https://a.test?jwt=secret\", price = 1 }]", "peer 1: unknown field price"),
        ("connect = [{ url = \"https://a.test?jwt=secret\", cost = -1 }]", "a table with a number out of range"),
        ("connect = [{ url = [\"secret\"] }]", "a table with more than texts and numbers"),
        ("connect = [1]", "relay.toml:2: cluster.connect: expected a URL, a table of url, cost and token"),
    ] {
        let error = Given::flags(&LEAST).and_file(&format!("[cluster]\n{file}\n")).error();
        assert!(error.contains(expected) && !error.contains("secret"), "{error}");
    }
}
