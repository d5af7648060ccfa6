//! Flag over environment over file over default, for every setting.

use super::{Given, LEAST};
use crate::config::Config;
use crate::config::catalog::{self, Form};
use crate::config::types::Size;

/// One setting: three values that differ (for the file, the environment, the flag), and how each, and the default, shows
/// in the result.
struct Row {
    key: &'static str,
    values: [&'static str; 3],
    shown: [&'static str; 3],
    default: &'static str,
    show: fn(&Config) -> String,
}

fn debug(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

const fn row(
    key: &'static str,
    values: [&'static str; 3],
    shown: [&'static str; 3],
    default: &'static str,
    show: fn(&Config) -> String,
) -> Row {
    Row { key, values, shown, default, show }
}

fn tls(config: &Config) -> &crate::config::Tls {
    &config.listen.quic.as_ref().expect("QUIC is on").tls
}

fn size(size: Option<Size>) -> String {
    size.map_or_else(|| "none".to_owned(), debug)
}

/// Three SHA-256 fingerprints.
const PRINTS: [&str; 3] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "1111111111111111111111111111111111111111111111111111111111111111",
    "2222222222222222222222222222222222222222222222222222222222222222",
];

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    vec![
        row("drain_timeout", ["1s", "2s", "3m"], ["1s", "2s", "180s"], "10s", |c| debug(c.drain_timeout)),
        row("drain_spread", ["1s", "2s", "3s"], ["Some(1s)", "Some(2s)", "Some(3s)"], "None", |c| debug(c.drain_spread)),
        row("listen.bind", ["127.0.0.1:1", "[::1]:2", "localhost:3"], ["127.0.0.1:1", "[::1]:2", "localhost:3"], "[::]:443",
            |c| c.listen.quic.as_ref().map_or_else(String::new, |quic| quic.bind.to_string())),
        row("listen.version", ["moq-lite-03", "moq-lite-07-wip", "moq-transport-22"],
            ["moq-lite-03", "moq-lite-07-wip", "moq-transport-22"],
            "moq-lite-06,moq-lite-05,moq-lite-04,moq-lite-03,moq-lite-02,moq-lite-01,moq-transport-22,moq-transport-21,\
             moq-transport-20,moq-transport-19,moq-transport-18,moq-transport-17,moq-transport-16,moq-transport-15,\
             moq-transport-14",
            |c| c.listen.versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        row("listen.timeout", ["1s", "2s", "0"], ["Some(1s)", "Some(2s)", "None"], "Some(10s)", |c| debug(c.listen.timeout)),
        row("listen.tls.cert", ["f", "e", "c"], ["f", "e", "c"], "",
            |c| tls(c).pairs.iter().map(|pair| pair.cert.display().to_string()).collect()),
        row("listen.tls.key", ["f", "e", "c"], ["f", "e", "c"], "",
            |c| tls(c).pairs.iter().map(|pair| pair.key.display().to_string()).collect()),
        row("listen.tls.generate", ["f.test", "e.test", "c.test"], ["f.test", "e.test", "c.test"], "localhost",
            |c| tls(c).generate.join(",")),
        row("listen.tls.root", ["f", "e", "c"], ["f", "e", "c"], "",
            |c| tls(c).roots.iter().map(|path| path.display().to_string()).collect()),
        row("listen.preferred_v4", ["192.0.2.1:1", "192.0.2.2:2", "192.0.2.3:3"],
            ["Some(192.0.2.1:1)", "Some(192.0.2.2:2)", "Some(192.0.2.3:3)"], "None",
            |c| debug(c.listen.quic.as_ref().and_then(|quic| quic.preferred_v4))),
        row("listen.preferred_v6", ["[2001:db8::1]:1", "[2001:db8::2]:2", "[2001:db8::3]:3"],
            ["Some([2001:db8::1]:1)", "Some([2001:db8::2]:2)", "Some([2001:db8::3]:3)"], "None",
            |c| debug(c.listen.quic.as_ref().and_then(|quic| quic.preferred_v6))),
        row("listen.tcp.bind", ["127.0.0.1:1", "127.0.0.1:2", "[::1]:3"],
            ["Some(127.0.0.1:1)", "Some(127.0.0.1:2)", "Some([::1]:3)"], "None", |c| debug(c.listen.tcp)),
        row("listen.unix.bind", ["/f", "/e", "/c"], ["/f", "/e", "/c"], "",
            |c| c.listen.unix.as_ref().map_or_else(String::new, |unix| unix.path.display().to_string())),
        row("listen.unix.allow.uid", ["1", "2", "3"], ["[1]", "[2]", "[3]"], "[]", |c| allow(c, |a| debug(&a.uid))),
        row("listen.unix.allow.gid", ["1", "2", "3"], ["[1]", "[2]", "[3]"], "[]", |c| allow(c, |a| debug(&a.gid))),
        row("listen.unix.allow.pid", ["1", "2", "3"], ["[1]", "[2]", "[3]"], "[]", |c| allow(c, |a| debug(&a.pid))),
        row("quic.max_streams", ["1", "2", "3"], ["1", "2", "3"], "10000", |c| debug(c.quic.max_streams)),
        row("quic.gso", ["false", "true", "false"], ["false", "true", "false"], "true", |c| debug(c.quic.gso)),
        row("quic.idle_timeout", ["1s", "2s", "0s"], ["Some(1s)", "Some(2s)", "None"], "Some(10s)", |c| debug(c.quic.idle_timeout)),
        row("quic.keep_alive", ["1s", "2s", "0s"], ["Some(1s)", "Some(2s)", "None"], "Some(3s)", |c| debug(c.quic.keep_alive)),
        row("quic.mtu_discovery", ["true", "false", "true"], ["true", "false", "true"], "false", |c| debug(c.quic.mtu_discovery)),
        row("quic.congestion_control", ["loss", "delay", "Loss"], ["Loss", "Delay", "Loss"], "Delay", |c| debug(c.quic.congestion_control)),
        row("quic.receive_window", ["1", "2", "3"], ["1", "2", "3"], "67108864", |c| debug(c.quic.receive_window)),
        row("quic.stream_receive_window", ["1", "2", "3"], ["Some(1)", "Some(2)", "Some(3)"], "None", |c| debug(c.quic.stream_receive_window)),
        row("quic.send_window", ["1", "2", "3"], ["Some(1)", "Some(2)", "Some(3)"], "None", |c| debug(c.quic.send_window)),
        row("connect.bind", ["127.0.0.1:1", "127.0.0.1:2", "[::1]:0"], ["Some(127.0.0.1:1)", "Some(127.0.0.1:2)", "Some([::1]:0)"], "None", |c| debug(c.connect.bind)),
        row("connect.race", ["1s", "2s", "0s"], ["1s", "2s", "0ns"], "250ms", |c| debug(c.connect.race)),
        row("connect.timeout", ["1s", "2s", "0s"], ["Some(1s)", "Some(2s)", "None"], "Some(30s)", |c| debug(c.connect.timeout)),
        row("connect.version", ["moq-lite-03", "moq-lite-04", "moq-transport-22"], ["moq-lite-03", "moq-lite-04", "moq-transport-22"],
            "moq-lite-06,moq-lite-05,moq-lite-04,moq-lite-03,moq-lite-02,moq-lite-01,moq-transport-22,moq-transport-21,\
             moq-transport-20,moq-transport-19,moq-transport-18,moq-transport-17,moq-transport-16,moq-transport-15,\
             moq-transport-14",
            |c| c.connect.versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        row("connect.once", ["true", "false", "true"], ["true", "false", "true"], "false", |c| debug(c.connect.reconnect.once)),
        row("connect.tls.root", ["f", "e", "c"], ["f", "e", "c"], "",
            |c| c.connect.tls.roots.iter().map(|path| path.display().to_string()).collect()),
        row("connect.tls.system_roots", ["true", "false", "true"], ["Some(true)", "Some(false)", "Some(true)"], "None",
            |c| debug(c.connect.tls.system_roots)),
        row("connect.tls.fingerprint", [PRINTS[0], PRINTS[1], PRINTS[2]], [PRINTS[0], PRINTS[1], PRINTS[2]], "",
            |c| c.connect.tls.fingerprints.join(",")),
        row("connect.tls.cert", ["f", "e", "c"], ["f", "e", "c"], "",
            |c| c.connect.tls.identity.as_ref().map_or_else(String::new, |pair| pair.cert.display().to_string())),
        row("connect.tls.key", ["f", "e", "c"], ["f", "e", "c"], "",
            |c| c.connect.tls.identity.as_ref().map_or_else(String::new, |pair| pair.key.display().to_string())),
        row("connect.tls.insecure", ["true", "false", "true"], ["true", "false", "true"], "false", |c| debug(c.connect.tls.insecure)),
        row("connect.tls.host_name", ["f", "e", "c"], ["Some(\"f\")", "Some(\"e\")", "Some(\"c\")"], "None",
            |c| debug(&c.connect.tls.host_name)),
        row("connect.backoff.initial", ["1s", "2s", "10ms"], ["1s", "2s", "10ms"], "1s", |c| debug(c.connect.reconnect.backoff.initial)),
        row("connect.backoff.multiplier", ["1", "2", "3"], ["1", "2", "3"], "2", |c| debug(c.connect.reconnect.backoff.multiplier)),
        row("connect.backoff.max", ["1s", "2s", "3s"], ["1s", "2s", "3s"], "5s", |c| debug(c.connect.reconnect.backoff.max)),
        row("connect.backoff.timeout", ["1s", "2s", "0"], ["Some(1s)", "Some(2s)", "None"], "Some(10s)",
            |c| debug(c.connect.reconnect.backoff.timeout)),
        row("connect.goaway.redirect", ["follow", "ignore", "same-host"], ["Follow", "Ignore", "SameHost"], "SameHost",
            |c| debug(c.connect.redirect)),
        row("connect.goaway.restart", ["redial", "wait", "handoff"], ["Redial", "Wait", "Handoff"], "Handoff",
            |c| debug(c.connect.reconnect.restart)),
        row("connect.goaway.handover", ["1s", "2s", "3s"], ["1s", "2s", "3s"], "10s", |c| debug(c.connect.reconnect.handover)),
        row("cluster.id", ["1", "2", "3"], ["Some(Base(1))", "Some(Base(2))", "Some(Base(3))"], "None", |c| debug(c.cluster.id)),
        row("cluster.max_hops", ["1", "2", "3"], ["1", "2", "3"], "32", |c| debug(c.cluster.max_hops.get())),
        row("cluster.connect", ["https://f.test", "https://e.test", "moqt://c.test"],
            ["https://f.test/", "https://e.test/", "moqt://c.test"], "",
            |c| c.cluster.peers.iter().map(|peer| peer.url(None).to_string()).collect()),
        // What it says shows in what it leaves out.
        row("cluster.node", ["https://f.test/", "https://e.test:443", "https://c.test"], ["ec", "fc", "fe"], "",
            |c| c.cluster.peers.iter().filter_map(|peer| peer.url(None).host_str()?.chars().next()).collect()),
        row("cluster.token", ["f", "e", "c"], ["f", "e", "c"], "",
            |c| c.cluster.token.as_ref().map_or_else(String::new, |path| path.display().to_string())),
        row("auth.public", ["f/**", "e/**", "c/**"], ["f/** f/**", "e/** e/**", "c/** c/**"], "** **", auth),
        row("auth.public_subscribe", ["f/**", "e/**", "c/**"], [" f/**", " e/**", " c/**"], "** **", auth),
        row("auth.public_publish", ["f/**", "e/**", "c/**"], ["f/** ", "e/** ", "c/** "], "** **", auth),
        row("cache.capacity", ["1", "2kB", "3KiB"], ["Bytes(1)", "Bytes(2000)", "Bytes(3072)"], "none", |c| size(c.cache.capacity)),
        row("cache.headroom", ["1", "50%", "3MiB"], ["Bytes(1)", "Percent(50.0)", "Bytes(3145728)"], "none", |c| size(c.cache.headroom)),
        row("cache.duration", ["1s", "2s", "3s"], ["Some(1s)", "Some(2s)", "Some(3s)"], "None", |c| debug(c.cache.duration)),
        row("runtime.workers", ["1", "2", "0"], ["1", "2", "6"], "6", |c| debug(c.runtime.workers)),
        row("runtime.pin", ["false", "true", "false"], ["false", "true", "false"], "true", |c| debug(c.runtime.pin)),
        row("internal.listen", ["127.0.0.1:1", "[::1]:2", "127.0.0.1:3"],
            ["Some(127.0.0.1:1)", "Some([::1]:2)", "Some(127.0.0.1:3)"], "None", |c| debug(c.internal)),
        row("stats.enabled", ["true", "false", "true"], ["true", "false", "true"], "false", |c| debug(c.stats.enabled)),
        row("stats.prefix", ["f", "e", "c/d"], ["f", "e", "c/d"], ".stats", |c| c.stats.prefix.to_string()),
        row("stats.interval", ["1", "2", "3"], ["1s", "2s", "3s"], "1s", |c| debug(c.stats.interval)),
        row("stats.node", ["f", "e", "c/d"], ["f", "e", "c/d"], "none",
            |c| c.stats.node.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)),
        row("log.level", ["warn", "debug", "trace"], ["Level(Warn)", "Level(Debug)", "Level(Trace)"], "Level(Info)", |c| debug(c.log.level)),
    ]
}

fn allow(config: &Config, show: fn(&crate::config::UnixAllow) -> String) -> String {
    config.listen.unix.as_ref().map_or_else(|| "[]".to_owned(), |unix| show(&unix.allow))
}

fn auth(config: &Config) -> String {
    let join = |patterns: &moq_net::Patterns| patterns.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    format!("{} {}", join(&config.auth.publish), join(&config.auth.subscribe))
}

/// What else has to be given for the row's setting to be looked at, and nothing that hides it.
fn base(key: &str) -> Given {
    let flags: &[&str] = match key {
        "listen.tls.cert" => &["--listen-tls-key", "key", "--auth-public", "**"],
        "listen.tls.key" => &["--listen-tls-cert", "cert", "--auth-public", "**"],
        "listen.tls.generate" => &["--auth-public", "**"],
        "connect.tls.cert" => return Given::flags(&LEAST).and_flags(&["--connect-tls-key", "key"]),
        "connect.tls.key" => return Given::flags(&LEAST).and_flags(&["--connect-tls-cert", "cert"]),
        // With a root, so that none of the values leaves no one to trust.
        "connect.tls.system_roots" => return Given::flags(&LEAST).and_flags(&["--connect-tls-root", "root"]),
        "cluster.node" => {
            let peers = "https://f.test,https://e.test,https://c.test";
            return Given::flags(&LEAST).and_flags(&["--cluster-connect", peers]);
        }
        key if key.starts_with("auth.") => &["--listen-tls-generate", "localhost"],
        key if key.starts_with("listen.unix.allow") => &[
            "--listen-unix-bind",
            "/s",
            "--listen",
            "[::]:1",
            "--listen-tls-generate",
            "localhost",
            "--auth-public",
            "**",
        ],
        _ => &LEAST,
    };
    Given::flags(flags)
}

/// `key = value` in the setting's own type, in its table.
fn in_file(setting: &catalog::Setting, value: &str) -> String {
    let value = match setting.form {
        Form::Text => format!("{value:?}"),
        Form::Number | Form::Bool | Form::Switch => value.to_owned(),
        Form::Texts | Form::Peers => format!("[{value:?}]"),
        Form::Numbers => format!("[{value}]"),
    };
    match setting.key.rsplit_once('.') {
        Some((table, key)) => format!("[{table}]\n{key} = {value}\n"),
        None => format!("{} = {value}\n", setting.key),
    }
}

#[test]
fn the_table_has_every_setting() {
    let rows = rows();
    let keys: Vec<_> = rows.iter().map(|row| row.key).collect();
    let all: Vec<_> = catalog::ALL.iter().map(|setting| setting.key).collect();
    assert_eq!(keys, all);
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    for row in rows() {
        let setting = catalog::ALL.into_iter().find(|setting| setting.key == row.key).unwrap();
        let flag = format!("--{}={}", setting.flag, row.values[2]);
        let file = base(row.key).and_file(&in_file(setting, row.values[0]));
        let variable = |given: Given| given.and_variable(setting.env, row.values[1]);

        let check = |given: Given, expected: &str| assert_eq!((row.show)(&given.config()), expected, "{}", row.key);
        check(file.clone(), row.shown[0]);
        check(variable(base(row.key)), row.shown[1]);
        check(variable(file.clone()), row.shown[1]);
        check(base(row.key).and_flags(&[&flag]), row.shown[2]);
        check(file.clone().and_flags(&[&flag]), row.shown[2]);
        check(variable(base(row.key)).and_flags(&[&flag]), row.shown[2]);
        check(variable(file).and_flags(&[&flag]), row.shown[2]);
        check(
            Given::flags(&LEAST),
            match row.key {
                // The least that a relay must be given shows here.
                "listen.tls.cert" | "listen.tls.key" => "",
                _ => row.default,
            },
        );
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    for setting in catalog::ALL {
        Given::flags(&LEAST).and_variable(setting.env, "").config();
    }
}

#[test]
fn a_list_is_given_by_repetition_or_commas_and_an_empty_one_in_the_file_is_empty() {
    for given in [
        Given::flags(&["--auth-public", "a/**", "--auth-public", "b/**"]),
        Given::flags(&["--auth-public", "a/**,b/**"]),
        Given::default().and_variable("MOQ_AUTH_PUBLIC", "a/**, b/**"),
        Given::default().and_file("[auth]\npublic = [\"a/**\", \"b/**\"]\n"),
    ] {
        let config = given.and_flags(&["--listen-tls-generate", "localhost"]).config();
        assert_eq!(auth(&config), "a/**,b/** a/**,b/**");
    }
    let given = Given::flags(&["--listen-tls-generate", "localhost"]).and_file("[auth]\npublic = []\n");
    assert!(given.error().starts_with("no one may publish or subscribe"));
}

#[test]
fn a_switch_alone_is_true_and_the_file_may_follow_it() {
    let given =
        Given::flags(&LEAST).and_flags(&["--quic-mtu-discovery"]).and_variable("MOQ_QUIC_MTU_DISCOVERY", "false");
    assert!(given.config().quic.mtu_discovery);
}

#[test]
fn a_stream_listener_alone_turns_quic_off_and_needs_no_certificate() {
    let config = Given::flags(&["--listen-tcp-bind", "127.0.0.1:0", "--auth-public", "**"]).config();
    assert!(config.listen.quic.is_none() && config.listen.tcp.is_some());
    let both = Given::flags(&["--listen-tcp-bind", "127.0.0.1:0", "--listen", "[::]:1"]).and_flags(&LEAST).config();
    assert!(both.listen.quic.is_some() && both.listen.tcp.is_some());
}

#[test]
fn rust_log_reaches_the_filter_and_a_bad_one_is_refused() {
    let config = Given::flags(&LEAST).and_variable("RUST_LOG", "warn,moq_net=trace").config();
    assert_eq!(config.log.filter().to_string(), "moq_net=trace,warn");
    assert_eq!(Given::flags(&LEAST).config().log.filter().to_string(), "info");
    let error = Given::flags(&LEAST).and_variable("RUST_LOG", "a=b=c").error();
    assert!(error.starts_with("RUST_LOG: "), "{error}");
}
