//! Texts into values. Each function says, when it can't, what it wants instead.

use super::types::{Bind, CongestionControl, Size};
use crate::cluster::hop;
use crate::reconnect::{Redirect, Restart};
use moq_net::origin::HopLimit;
use moq_net::{PathOwned, Pattern, Version};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

/// What is wrong with a text, and the remedy.
pub(super) type Problem = String;

/// The largest QUIC variable-length integer (RFC 9000 §16).
const VARINT_MAX: u64 = (1 << 62) - 1;

/// The most streams of one kind that QUIC can count (RFC 9000 §4.6).
const STREAMS_MAX: u64 = 1 << 60;

/// Clocks count no further than some centuries ahead, and overflow panics: more than this is a mistake.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(super) fn duration(text: &str) -> Result<Duration, Problem> {
    let duration = humantime::parse_duration(text)
        .map_err(|_| format!("\"{text}\" is not a duration; write a number and a unit, as in 10s or 500ms"))?;
    if duration > LONGEST {
        return Err(format!("\"{text}\" is too long; give at most ten years"));
    }
    Ok(duration)
}

/// A duration of which zero means "never" or "for ever".
pub(super) fn duration_or_off(text: &str) -> Result<Option<Duration>, Problem> {
    Ok(Some(duration(text)?).filter(|duration| !duration.is_zero()))
}

pub(super) fn boolean(text: &str) -> Result<bool, Problem> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("\"{text}\" is neither true nor false")),
    }
}

/// A path of a broadcast that is not the root.
pub(super) fn path(text: &str) -> Result<PathOwned, Problem> {
    let path = moq_net::Path::new(text).to_owned();
    if path.is_empty() { Err(format!("\"{text}\" is no path; give one as in .stats or eu/1")) } else { Ok(path) }
}

/// A duration in whole seconds, above 0.
pub(super) fn seconds(text: &str) -> Result<Duration, Problem> {
    match number(text, "a number of seconds")? {
        0 => Err(format!("\"{text}\" is no interval; give at least 1")),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

pub(super) fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| format!("\"{text}\" is not {what}"))
}

pub(super) fn streams(text: &str) -> Result<u64, Problem> {
    let what = "a number of streams from 1 to 2^60";
    match number(text, what)? {
        0 => Err(format!("\"{text}\" is not {what}")),
        count if count > STREAMS_MAX => Err(format!("\"{text}\" is not {what}")),
        count => Ok(count),
    }
}

/// A flow-control window: zero would stall every connection.
pub(super) fn window(text: &str) -> Result<u64, Problem> {
    let what = "a number of bytes from 1 to 2^62 - 1";
    match number(text, what)? {
        0 => Err(format!("\"{text}\" is not {what}")),
        bytes if bytes > VARINT_MAX => Err(format!("\"{text}\" is not {what}")),
        bytes => Ok(bytes),
    }
}

pub(super) fn cluster_id(text: &str) -> Result<hop::Base, Problem> {
    let what = "a node's number from 1 to 2^62 - 1";
    hop::Base::new(number(text, what)?).ok_or_else(|| format!("\"{text}\" is not {what}"))
}

pub(super) fn hops(text: &str) -> Result<HopLimit, Problem> {
    let what = "a number of hops from 1 to 32";
    HopLimit::new(number(text, what)?).ok_or_else(|| format!("\"{text}\" is not {what}"))
}

/// The first pause, which is also what a session must live to be healthy: without a floor, everything would be.
pub(super) fn first_pause(text: &str) -> Result<Duration, Problem> {
    let least = Duration::from_millis(10);
    duration(text).and_then(|pause| {
        if pause < least { Err(format!("\"{text}\" is too short; give at least 10ms")) } else { Ok(pause) }
    })
}

pub(super) fn multiplier(text: &str) -> Result<u32, Problem> {
    let what = "a whole factor of at least 1";
    match number(text, what)? {
        0 => Err(format!("\"{text}\" is not {what}")),
        factor => Ok(factor),
    }
}

pub(super) fn redirect(text: &str) -> Result<Redirect, Problem> {
    match text {
        "same-host" => Ok(Redirect::SameHost),
        "follow" => Ok(Redirect::Follow),
        "ignore" => Ok(Redirect::Ignore),
        _ => Err(format!("\"{text}\" is not a policy; use same-host, follow or ignore")),
    }
}

pub(super) fn restart(text: &str) -> Result<Restart, Problem> {
    match text {
        "redial" => Ok(Restart::Redial),
        "wait" => Ok(Restart::Wait),
        "handoff" => Ok(Restart::Handoff),
        _ => Err(format!("\"{text}\" is not a policy; use redial, wait or handoff")),
    }
}

/// Checked, and left as text: so is what wants it.
pub(super) fn fingerprint(text: &str) -> Result<String, Problem> {
    match hex::decode(text) {
        Ok(digest) if digest.len() == 32 => Ok(text.to_owned()),
        Ok(_) | Err(_) => Err(format!("\"{text}\" is not a SHA-256 fingerprint; write 64 hexadecimal digits")),
    }
}

pub(super) fn congestion(text: &str) -> Result<CongestionControl, Problem> {
    match text.to_ascii_lowercase().as_str() {
        "loss" => Ok(CongestionControl::Loss),
        "delay" => Ok(CongestionControl::Delay),
        _ => Err(format!("\"{text}\" is not a congestion controller; use delay or loss")),
    }
}

pub(super) fn bind(text: &str) -> Result<Bind, Problem> {
    if let Ok(address) = text.parse() {
        return Ok(Bind::Addr(address));
    }
    let problem =
        || format!("\"{text}\" is not an address; write HOST:PORT, as in [::]:443, 0.0.0.0:4443 or localhost:4443");
    let (host, port) = text.rsplit_once(':').ok_or_else(problem)?;
    // More colons than one: an IPv6 address without its brackets.
    if host.is_empty() || host.contains([':', '[', ']', '/']) || host.contains(char::is_whitespace) {
        return Err(problem());
    }
    Ok(Bind::Host(host.to_owned(), port.parse().map_err(|_| problem())?))
}

pub(super) fn address(text: &str) -> Result<SocketAddr, Problem> {
    text.parse().map_err(|_| format!("\"{text}\" is not an address; write IP:PORT, as in 127.0.0.1:4443 or [::1]:4443"))
}

pub(super) fn preferred_v4(text: &str) -> Result<SocketAddrV4, Problem> {
    text.parse()
        .ok()
        .filter(|address: &SocketAddrV4| !address.ip().is_unspecified() && address.port() != 0)
        .ok_or_else(|| format!("\"{text}\" is no IPv4 address that a client can send to; write it as in 192.0.2.1:443"))
}

pub(super) fn preferred_v6(text: &str) -> Result<SocketAddrV6, Problem> {
    text.parse().ok().filter(|address: &SocketAddrV6| !address.ip().is_unspecified() && address.port() != 0).ok_or_else(
        || format!("\"{text}\" is no IPv6 address that a client can send to; write it as in [2001:db8::1]:443"),
    )
}

pub(super) fn version(text: &str) -> Result<Version, Problem> {
    text.parse().map_err(|_| {
        let names: Vec<_> = Version::names().collect();
        format!("\"{text}\" is not a version; this relay speaks {}", names.join(", "))
    })
}

/// A pattern with a wildcard: `anon` alone would name one broadcast, where people mean all that is below.
pub(super) fn pattern(text: &str) -> Result<Pattern, Problem> {
    let pattern: Pattern = text.parse().map_err(|error| {
        format!("\"{text}\" is not a pattern ({error}); write one as in anon/**, or ** for everything")
    })?;
    match Pattern::subtree(pattern.as_str()) {
        Ok(subtree) if pattern.is_literal() && subtree != pattern => {
            Err(format!("\"{text}\" has no wildcard and so names one broadcast; write \"{subtree}\" for all below it"))
        }
        // A literal at the greatest depth is its own subtree.
        Ok(_) | Err(_) => Ok(pattern),
    }
}

pub(super) fn size(text: &str) -> Result<Size, Problem> {
    let problem = || {
        format!("\"{text}\" is not a size; write bytes, a number and a unit as in 512MB or 8GiB, or a part as in 75%")
    };
    let trimmed = text.trim();
    if let Some(percent) = trimmed.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().map_err(|_| problem())?;
        return if percent > 0.0 && percent <= 100.0 {
            Ok(Size::Percent(percent))
        } else {
            Err(format!("\"{text}\" is not above 0% and at most 100%"))
        };
    }
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        "ti" | "tib" => 1 << 40,
        _ => return Err(problem()),
    };
    scaled(number, unit).map(Size::Bytes).ok_or_else(problem)
}

/// `number`, a decimal with or without a fraction, times `unit`, rounded down; exact for whole numbers.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut bytes = u128::from(whole.parse::<u64>().ok()?).checked_mul(u128::from(unit))?;
    if !fraction.is_empty() {
        // More digits than these can't change a byte of the largest unit.
        let fraction = fraction.get(..fraction.len().min(15))?;
        let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        bytes = bytes.checked_add(fraction.parse::<u128>().ok()? * u128::from(unit) / scale)?;
    }
    u64::try_from(bytes).ok()
}

pub(super) fn level(text: &str) -> Result<tracing::Level, Problem> {
    text.parse().map_err(|_| format!("\"{text}\" is not a level; use error, warn, info, debug or trace"))
}
