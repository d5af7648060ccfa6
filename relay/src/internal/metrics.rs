//! Counters as Prometheus reads them (text exposition format 0.0.4), with the names of moq-relay 0.17.

use crate::stats::{Failures, NodeCounters};
use moq_net::stats::{Presence, Traffic};
use moq_tokio::accept::Health;
use std::fmt::{Display, Write as _};

/// A counter: its name, what it means, and where it is.
type Series<T> = (&'static str, &'static str, fn(&T) -> u64);

/// A class of failures: its label, and where its counter is.
type Class = (&'static str, fn(&Failures) -> u64);

const TRAFFIC: [Series<Traffic>; 15] = [
    ("bytes", "Payload bytes of media.", |traffic| traffic.bytes),
    ("frames", "Frames of media.", |traffic| traffic.frames),
    ("groups", "Groups of media.", |traffic| traffic.groups),
    ("datagrams", "Groups that went as one datagram; they are in groups too.", |traffic| traffic.datagrams),
    ("stale_bytes", "Payload bytes given up as too old for a subscriber.", |traffic| traffic.stale.bytes),
    ("stale_frames", "Frames given up as too old for a subscriber.", |traffic| traffic.stale.frames),
    ("stale_groups", "Groups given up as too old for a subscriber.", |traffic| traffic.stale.groups),
    ("stale_datagrams", "Datagrams given up as too old for a subscriber.", |traffic| traffic.stale.datagrams),
    ("fetches", "Groups asked for one by one.", |traffic| traffic.fetches),
    ("announces_started", "Broadcasts announced.", |traffic| traffic.announces_started),
    ("announces_ended", "Broadcasts withdrawn; the difference is announced now.", |traffic| traffic.announces_ended),
    ("subscriptions_opened", "Subscriptions to tracks.", |traffic| traffic.subscriptions_started),
    ("subscriptions_closed", "Subscriptions ended; the difference is open now.", |traffic| traffic.subscriptions_ended),
    ("viewers_opened", "Sessions that began to watch a broadcast.", |traffic| traffic.broadcasts_started),
    ("viewers_closed", "Sessions that ceased to; the difference watches now.", |traffic| traffic.broadcasts_ended),
];

const SESSIONS: [Series<Presence>; 2] = [
    ("sessions_opened", "Sessions accepted.", |presence| presence.sessions_started),
    ("sessions_closed", "Sessions ended; the difference is open now.", |presence| presence.sessions_ended),
];

const FAILURES: [Class; 3] = [
    ("connection", |failures| failures.connection),
    ("exhausted", |failures| failures.exhausted),
    ("unknown", |failures| failures.unknown),
];

/// The page. `listeners` are those of this process, which is the one that accepts.
pub(super) fn text(node: &NodeCounters, listeners: &[Health]) -> String {
    let NodeCounters { totals, accepts, draining } = node;
    let mut page = String::new();
    for (name, help, value) in TRAFFIC {
        head(&mut page, &format!("{name}_total"), "counter", help);
        for (tier, totals) in &totals.0 {
            for (role, traffic) in [("publisher", &totals.publisher), ("subscriber", &totals.subscriber)] {
                row(&mut page, &format!("{name}_total{{tier=\"{tier}\",role=\"{role}\"}}"), value(traffic));
            }
        }
    }
    for (name, help, value) in SESSIONS {
        head(&mut page, &format!("{name}_total"), "counter", help);
        for (tier, totals) in &totals.0 {
            row(&mut page, &format!("{name}_total{{tier=\"{tier}\"}}"), value(&totals.sessions));
        }
    }
    for direction in ["tx", "rx"] {
        let name = format!("control_{direction}_bytes_total");
        head(&mut page, &name, "counter", "Bytes of control messages, without the transport's own.");
        for (tier, totals) in &totals.0 {
            for (class, bytes) in &totals.control {
                let value = if direction == "tx" { bytes.tx } else { bytes.rx };
                row(&mut page, &format!("{name}{{tier=\"{tier}\",class=\"{class}\"}}"), value);
            }
        }
    }
    head(&mut page, "accept_failures_total", "counter", "Connections that could not be accepted, by what that means.");
    for (listener, failures) in &accepts.0 {
        for (class, value) in FAILURES {
            let series = format!("accept_failures_total{{listener=\"{listener}\",class=\"{class}\"}}");
            row(&mut page, &series, value(failures));
        }
    }
    head(
        &mut page,
        "accept_stalled_seconds",
        "gauge",
        "For how long a listener has had no resources to accept; 0: it has.",
    );
    for health in listeners {
        let stalled = health.stalled().unwrap_or_default().as_secs_f64();
        row(&mut page, &format!("accept_stalled_seconds{{listener=\"{}\"}}", health.listener()), stalled);
    }
    head(&mut page, "draining_sessions", "gauge", "Sessions told to go that have not gone.");
    row(&mut page, "draining_sessions", *draining);
    page
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = write!(page, "# HELP moq_relay_{name} {help}\n# TYPE moq_relay_{name} {kind}\n");
}

fn row(page: &mut String, series: &str, value: impl Display) {
    let _ = writeln!(page, "moq_relay_{series} {value}");
}

#[cfg(test)]
mod tests {
    use super::text;
    use crate::stats::{Accepts, NodeCounters, Totals};
    use moq_tokio::accept::Health;

    /// A scraper takes the whole page or nothing of it.
    #[test]
    fn every_series_has_a_head_and_comes_once() {
        let totals = r#"{"": {"publisher": {"bytes": 7}, "control": {"setup": {"tx": 1, "rx": 2}}}, "edge": {}}"#;
        let totals: Totals = serde_json::from_str(totals).expect("totals");
        let listeners = [Health::new("tcp"), Health::new("internal")];
        let exhausted = std::io::Error::from_raw_os_error(libc::EMFILE);
        assert!(listeners[0].failed(&exhausted).is_some());
        let page = text(&NodeCounters { totals, accepts: Accepts::of(&listeners), draining: 3 }, &listeners);
        let mut seen = std::collections::BTreeSet::new();
        let mut heads = std::collections::BTreeSet::new();
        for line in page.lines() {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                assert!(heads.insert(head.split(' ').next().expect("a name").to_owned()), "{line}");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(seen.insert(series.to_owned()), "{line}");
                assert!(heads.contains(series.split('{').next().expect("a name")), "{line}");
            }
        }
        assert!(seen.contains("moq_relay_bytes_total{tier=\"\",role=\"publisher\"}"), "{page}");
        assert!(seen.contains("moq_relay_control_rx_bytes_total{tier=\"\",class=\"setup\"}"), "{page}");
        for line in [
            "accept_failures_total{listener=\"internal\",class=\"unknown\"} 0",
            "accept_failures_total{listener=\"tcp\",class=\"exhausted\"} 1",
            "accept_stalled_seconds{listener=\"internal\"} 0",
        ] {
            assert!(page.contains(&format!("\nmoq_relay_{line}\n")), "{line} in {page}");
        }
        assert!(!page.contains("accept_stalled_seconds{listener=\"tcp\"} 0\n"), "it is stalled: {page}");
        assert!(page.ends_with("moq_relay_draining_sessions 3\n"));
    }
}
