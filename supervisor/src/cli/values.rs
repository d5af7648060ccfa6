//! Values of flags: each error says what would do.
#![expect(clippy::disallowed_methods, reason = "the command line is where the environment is read")]

use super::HealthUrl;
use hyper::Uri;
use std::ffi::OsString;
use std::time::Duration;

/// No timeout is longer. It keeps every sum of deadlines far from overflow, and catches a slip of the unit.
const LONGEST: Duration = Duration::from_hours(366 * 24);

pub(super) fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let value = humantime::parse_duration(text)
        .map_err(|_| "use a number with a unit, such as 500ms, 30s, 10m or 1h 30m".to_owned())?;
    if value > LONGEST {
        return Err("use at most 366 days".to_owned());
    }
    Ok(value)
}

pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("use more than zero, such as 30s".to_owned()),
        value => Ok(value),
    }
}

pub(super) fn max_generations(text: &str) -> Result<usize, String> {
    let value = text.parse().ok().filter(|value| (2..=16).contains(value));
    value.ok_or_else(|| "use a number from 2 to 16".to_owned())
}

pub(super) fn command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("use a shell command, or leave the flag out".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

pub(super) fn health_url(text: &str) -> Result<HealthUrl, String> {
    const REMEDY: &str =
        "use a plain http URL such as http://127.0.0.1:8080/health, or --health-command for anything else";
    let uri: Uri = text.parse().map_err(|_| REMEDY.to_owned())?;
    if uri.scheme_str() != Some("http") {
        return Err(REMEDY.to_owned());
    }
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or(REMEDY)?;
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() {
        return Err(REMEDY.to_owned());
    }
    Ok(HealthUrl {
        authority: authority.as_str().to_owned(),
        host: bare.to_owned(),
        port: authority.port_u16().unwrap_or(80),
        path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
    })
}
