//! Names that are unknown or refused, in each place where they can be given.

use super::{Given, LEAST};
use crate::config::catalog;
use crate::config::refused::{self, Why};

/// Every environment variable of moq-relay 0.17.10, with those of older names that it still refuses.
const MOQ_RELAY_0_17: &str = "\
    AUTH_API AUTH_DOMAIN AUTH_KEY AUTH_KEY_DIR AUTH_MTLS_TIER AUTH_PUBLIC AUTH_PUBLIC_API AUTH_PUBLIC_PUBLISH \
    AUTH_PUBLIC_SUBSCRIBE AUTH_TLS_CERT AUTH_TLS_DISABLE_VERIFY AUTH_TLS_KEY AUTH_TLS_ROOT AUTH_URL BACKOFF_INITIAL \
    BACKOFF_MAX BACKOFF_MULTIPLIER BACKOFF_TIMEOUT CACHE_CAPACITY CACHE_DURATION CACHE_HEADROOM CLIENT_BIND CLIENT_CONNECT \
    CLIENT_CONNECT_TIMEOUT CLIENT_FAILOVER_DELAY CLIENT_QUIC_CONGESTION_CONTROL CLIENT_QUIC_GSO CLIENT_QUIC_IDLE_TIMEOUT \
    CLIENT_QUIC_KEEP_ALIVE CLIENT_QUIC_MAX_STREAMS CLIENT_QUIC_MTU_DISCOVERY CLIENT_QUIC_QLOG CLIENT_RECONNECT \
    CLIENT_RESOLUTION_DELAY CLIENT_TLS_CERT CLIENT_TLS_DISABLE_VERIFY CLIENT_TLS_FINGERPRINT CLIENT_TLS_HOST_NAME \
    CLIENT_TLS_KEY CLIENT_TLS_ROOT CLIENT_TLS_SYSTEM_ROOTS CLIENT_VERSION CLIENT_WEBSOCKET_DELAY CLIENT_WEBSOCKET_ENABLED \
    CLUSTER_CONNECT CLUSTER_CONNECT_API CLUSTER_ID CLUSTER_LAN CLUSTER_LAN_APP CLUSTER_LAN_SECRET CLUSTER_LINGER \
    CLUSTER_MAX_HOPS CLUSTER_MESH CLUSTER_NODE CLUSTER_TIER CLUSTER_TOKEN CONNECT CONNECT_BIND CONNECT_ONCE CONNECT_RACE \
    CONNECT_RESOLUTION_DELAY CONNECT_TIMEOUT CONNECT_TLS_CERT CONNECT_TLS_FINGERPRINT CONNECT_TLS_HOST_NAME \
    CONNECT_TLS_INSECURE CONNECT_TLS_KEY CONNECT_TLS_ROOT CONNECT_TLS_SYSTEM_ROOTS CONNECT_VERSION CONNECT_WEBSOCKET_DELAY \
    CONNECT_WEBSOCKET_ENABLED DRAIN_TIMEOUT GOAWAY_HANDOVER GOAWAY_REDIRECT INTERNAL_LISTEN IROH_BIND_V4 IROH_BIND_V6 \
    IROH_DISABLE_RELAY IROH_ENABLED IROH_SECRET LISTEN LISTEN_PREFERRED_V4 LISTEN_PREFERRED_V6 LISTEN_QUIC_LB_ID \
    LISTEN_QUIC_LB_NONCE LISTEN_TCP_BIND LISTEN_TIMEOUT LISTEN_TLS_CERT LISTEN_TLS_GENERATE LISTEN_TLS_KEY LISTEN_TLS_ROOT \
    LISTEN_UNIX_ALLOW_GID LISTEN_UNIX_ALLOW_PID LISTEN_UNIX_ALLOW_UID LISTEN_UNIX_BIND LISTEN_VERSION LOG_LEVEL \
    QUIC_CONGESTION_CONTROL QUIC_GSO QUIC_IDLE_TIMEOUT QUIC_KEEP_ALIVE QUIC_MAX_STREAMS QUIC_MTU_DISCOVERY QUIC_QLOG \
    QUIC_RECEIVE_WINDOW QUIC_SEND_WINDOW QUIC_STREAM_RECEIVE_WINDOW RUNTIME_IO_URING RUNTIME_PIN RUNTIME_WORKERS SERVER_BIND \
    SERVER_PREFERRED_V4 SERVER_PREFERRED_V6 SERVER_QUIC_CONGESTION_CONTROL SERVER_QUIC_GSO SERVER_QUIC_IDLE_TIMEOUT \
    SERVER_QUIC_KEEP_ALIVE SERVER_QUIC_LB_ID SERVER_QUIC_LB_NONCE SERVER_QUIC_MAX_STREAMS SERVER_QUIC_MTU_DISCOVERY \
    SERVER_QUIC_QLOG SERVER_TCP_BIND SERVER_TLS_CERT SERVER_TLS_GENERATE SERVER_TLS_KEY SERVER_TLS_ROOT \
    SERVER_UNIX_ALLOW_GID SERVER_UNIX_ALLOW_PID SERVER_UNIX_ALLOW_UID SERVER_UNIX_BIND SERVER_VERSION STATS_DEPTH \
    STATS_ENABLED STATS_INTERVAL STATS_LINGER STATS_NODE STATS_PREFIX WEB_HTTPS_CERT WEB_HTTPS_KEY WEB_HTTPS_LISTEN \
    WEB_HTTPS_ROOT WEB_HTTP_LISTEN WEB_WS";

#[test]
fn every_variable_of_moq_relay_is_supported_or_refused() {
    for name in MOQ_RELAY_0_17.split_whitespace() {
        let name = format!("MOQ_{name}");
        let supported = catalog::ALL.iter().any(|setting| setting.env == name);
        let refused = refused::ALL.iter().any(|entry| entry.env == Some(&name));
        assert!(supported != refused, "{name}: supported {supported}, refused {refused}");
    }
}

#[test]
fn no_name_is_both_supported_and_refused_or_refused_twice() {
    for (index, entry) in refused::ALL.iter().enumerate() {
        for flag in entry.flags {
            assert!(catalog::ALL.iter().all(|setting| setting.flag != *flag), "--{flag}");
            assert!(refused::ALL[..index].iter().all(|other| !other.flags.contains(flag)), "--{flag}");
        }
        if let Some(key) = entry.key {
            assert!(catalog::ALL.iter().all(|setting| setting.key != key), "{key}");
            assert!(refused::ALL[..index].iter().all(|other| other.key != Some(key)), "{key}");
        }
        if let Some(env) = entry.env {
            assert!(refused::ALL[..index].iter().all(|other| other.env != Some(env)), "{env}");
        }
    }
}

/// Each refused name, wherever it can be given, is named in the message, with what to do.
#[test]
fn each_refused_name_is_named_with_the_reason() {
    for entry in refused::ALL {
        let (verb, remedy) = match entry.why {
            Why::Unsupported(why) => ("is not supported by this relay", why.to_owned()),
            Why::Renamed(to) => ("has been renamed", format!("--{}", to.flag)),
            Why::Table(to) => ("has been renamed", to.to_owned()),
            Why::Removed(why) => ("has been removed", why.to_owned()),
        };
        let check = |given: &Given, name: &str| {
            let error = given.error();
            assert!(error.starts_with(&format!("{name} {verb}: ")) && error.contains(&remedy), "{error}");
        };
        for flag in entry.flags {
            let name = format!("--{flag}");
            check(&Given::flags(&LEAST).and_flags(&[&name, "value"]), &name);
            check(&Given::flags(&LEAST).and_flags(&[&format!("{name}=value")]), &name);
        }
        if let Some(env) = entry.env {
            check(&Given::flags(&LEAST).and_variable(env, "value"), env);
            Given::flags(&LEAST).and_variable(env, "").config();
        }
        if let Some(key) = entry.key {
            let file = Given::flags(&LEAST).and_file(&format!("\n\n{key} = \"value\"\n"));
            check(&file, &format!("relay.toml:3: {key}"));
        }
    }
}

#[test]
fn a_whole_table_that_was_renamed_is_named() {
    let error = Given::flags(&LEAST).and_file("[server]\nbind = \"[::]:443\"\n").error();
    assert_eq!(error, "relay.toml:1: server has been renamed: use the [listen] table");
}

#[test]
fn a_refused_name_after_two_dashes_is_a_file() {
    let error = Given::flags(&LEAST).and_flags(&["--", "--auth-url"]).error();
    assert!(error.starts_with("--auth-url: can't read this file"), "{error}");
}

#[test]
fn an_unknown_name_is_named_with_what_there_is() {
    for (given, expected) in [
        (Given::flags(&["--frobnicate"]), "--frobnicate is not a flag of this relay: moq-relay --help lists all"),
        (Given::flags(&["--listne", "[::]:1"]), "--listne is not a flag of this relay: did you mean --listen?"),
        (Given::flags(&["-x"]), "-x is not a flag of this relay: moq-relay --help lists all"),
        (
            Given::default().and_file("x = 1\n"),
            "relay.toml:1: x is not a setting of this relay: the file has drain_timeout",
        ),
        (
            Given::default().and_file("# c\n[quic]\nwindow = 1\n"),
            "relay.toml:3: quic.window is not a setting of this relay: [quic] has max_streams, gso,",
        ),
        (
            Given::default().and_file("[listen]\nbind = \"[::]:1\"\n[listen.tls]\ncerts = []\n"),
            "relay.toml:4: listen.tls.certs is not a setting of this relay: [listen.tls] has cert, key, generate, root",
        ),
        (
            Given::default().and_file("[iroh]\nfoo = 1\n"),
            "relay.toml:2: iroh.foo is not a setting of this relay: nothing in [iroh] is; remove it",
        ),
        (
            Given::default().and_file("listen = 1\n"),
            "relay.toml:1: listen is not a setting of this relay: the file has",
        ),
        (Given::flags(&["a.toml", "b.toml"]), "b.toml: one FILE at most"),
    ] {
        let error = given.error();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_file_that_can_not_be_read_or_is_not_toml_is_named() {
    let error = Given::flags(&["/no/such/file.toml"]).error();
    assert!(error.starts_with("/no/such/file.toml: can't read this file (No such file"), "{error}");
    let error = Given::default().and_file("[listen]\nbind = \n").error();
    assert!(error.starts_with("relay.toml:2: not TOML: "), "{error}");
}

#[test]
fn a_flag_without_its_value_or_given_twice_is_named() {
    for flags in [&["--listen"][..], &["--listen", "[::]:1", "--listen", "[::]:2"], &["--runtime-pin"]] {
        let error = Given::flags(flags).error();
        assert!(error.contains(flags[0]) && error.ends_with("see moq-relay --help"), "{error}");
    }
}
