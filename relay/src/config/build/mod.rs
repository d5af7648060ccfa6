//! The merged layers into a [`Config`]: each value parsed, and what must agree compared.

mod dial;

use super::catalog::{self, Setting};
use super::given::{Given, Layer};
use super::types::{
    Auth, Cache, Config, Listen, Log, PairFiles, Quic, QuicListener, Runtime, Size, Stats, Tls, UnixAllow, UnixListener,
};
use super::values::{self, Problem};
use super::{Error, MAX_WORKERS};
use moq_net::{Patterns, Versions};
use std::num::NonZeroU16;
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// What the machine says, for the defaults that depend on it.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Cores that this process may use.
    pub(super) cores: NonZeroU16,
    /// `RUST_LOG`.
    pub(super) rust_log: Option<String>,
}

/// Builds the settings.
///
/// # Errors
/// The first value that can't be used, or a combination that can't.
pub(super) fn build(layer: &Layer, machine: &Machine) -> Result<Config, Error> {
    let connect = dial::connect(layer)?;
    Ok(Config {
        listen: listen(layer)?,
        quic: quic(layer)?,
        cluster: dial::cluster(layer, &connect)?,
        connect,
        auth: auth(layer)?,
        cache: cache(layer)?,
        runtime: runtime(layer, machine)?,
        internal: optional(layer, &catalog::INTERNAL_LISTEN, values::address)?,
        stats: stats(layer)?,
        log: log(layer, machine)?,
        drain_timeout: required(layer, &catalog::DRAIN_TIMEOUT, values::duration)?,
        drain_spread: optional(layer, &catalog::DRAIN_SPREAD, values::duration)?,
    })
}

fn listen(layer: &Layer) -> Result<Listen, Error> {
    let tcp = optional(layer, &catalog::TCP_BIND, values::address)?;
    let unix = unix(layer)?;
    let quic = if layer.get(&catalog::LISTEN).is_some() || (tcp.is_none() && unix.is_none()) {
        Some(QuicListener {
            bind: required(layer, &catalog::LISTEN, values::bind)?,
            tls: tls(layer)?,
            preferred_v4: optional(layer, &catalog::PREFERRED_V4, values::preferred_v4)?,
            preferred_v6: optional(layer, &catalog::PREFERRED_V6, values::preferred_v6)?,
        })
    } else {
        None
    };
    let versions = list(layer, &catalog::LISTEN_VERSION, values::version)?;
    Ok(Listen {
        quic,
        tcp,
        unix,
        versions: if versions.is_empty() { Versions::all() } else { Versions::from(versions) },
        timeout: required(layer, &catalog::LISTEN_TIMEOUT, values::duration_or_off)?,
    })
}

fn unix(layer: &Layer) -> Result<Option<UnixListener>, Error> {
    let allow = UnixAllow {
        uid: list(layer, &catalog::UNIX_UID, |text| values::number(text, "a user id"))?,
        gid: list(layer, &catalog::UNIX_GID, |text| values::number(text, "a group id"))?,
        pid: list(layer, &catalog::UNIX_PID, |text| values::number(text, "a process id"))?,
    };
    let path = optional(layer, &catalog::UNIX_BIND, |text| {
        std::path::absolute(text).map_err(|error| format!("\"{text}\" is not a path ({error}); give an absolute one"))
    })?;
    Ok(path.map(|path| UnixListener { path, allow }))
}

fn tls(layer: &Layer) -> Result<Tls, Error> {
    let certs: Vec<PathBuf> = paths(layer, &catalog::TLS_CERT);
    let keys: Vec<PathBuf> = paths(layer, &catalog::TLS_KEY);
    if certs.len() != keys.len() {
        return Err(Error::new(format!(
            "--{} names {} and --{} {}: give one key for each certificate, in the same order",
            catalog::TLS_CERT.flag,
            counted(certs.len(), "file"),
            catalog::TLS_KEY.flag,
            keys.len(),
        )));
    }
    let pairs: Vec<_> = certs.into_iter().zip(keys).map(|(cert, key)| PairFiles { cert, key }).collect();
    let generate = list(layer, &catalog::TLS_GENERATE, |text| Ok(text.to_owned()))?;
    if pairs.is_empty() && generate.is_empty() {
        return Err(Error::new(format!(
            "there is no certificate to serve: give --{} and --{}, or --{} HOST for a self-signed one",
            catalog::TLS_CERT.flag,
            catalog::TLS_KEY.flag,
            catalog::TLS_GENERATE.flag,
        )));
    }
    Ok(Tls { pairs, generate, roots: paths(layer, &catalog::TLS_ROOT) })
}

fn quic(layer: &Layer) -> Result<Quic, Error> {
    Ok(Quic {
        max_streams: required(layer, &catalog::MAX_STREAMS, values::streams)?,
        gso: required(layer, &catalog::GSO, values::boolean)?,
        idle_timeout: required(layer, &catalog::IDLE_TIMEOUT, values::duration_or_off)?,
        keep_alive: required(layer, &catalog::KEEP_ALIVE, values::duration_or_off)?,
        mtu_discovery: required(layer, &catalog::MTU_DISCOVERY, values::boolean)?,
        congestion_control: required(layer, &catalog::CONGESTION, values::congestion)?,
        receive_window: required(layer, &catalog::RECEIVE_WINDOW, values::window)?,
        stream_receive_window: optional(layer, &catalog::STREAM_RECEIVE_WINDOW, values::window)?,
        send_window: optional(layer, &catalog::SEND_WINDOW, values::window)?,
    })
}

fn auth(layer: &Layer) -> Result<Auth, Error> {
    let both = list(layer, &catalog::AUTH_PUBLIC, values::pattern)?;
    let publish = list(layer, &catalog::AUTH_PUBLISH, values::pattern)?;
    let subscribe = list(layer, &catalog::AUTH_SUBSCRIBE, values::pattern)?;
    if both.is_empty() && publish.is_empty() && subscribe.is_empty() {
        return Err(Error::new(format!(
            "no one may publish or subscribe: give --{} PATTERN, as in anon/**, or ** for everything",
            catalog::AUTH_PUBLIC.flag,
        )));
    }
    Ok(Auth {
        publish: both.iter().cloned().chain(publish).collect::<Patterns>(),
        subscribe: both.into_iter().chain(subscribe).collect(),
    })
}

fn cache(layer: &Layer) -> Result<Cache, Error> {
    let headroom = optional(layer, &catalog::CACHE_HEADROOM, |text| match values::size(text)? {
        Size::Bytes(0) => Err(format!("\"{text}\" keeps nothing free; give a size above 0, or leave it out")),
        size @ (Size::Bytes(_) | Size::Percent(_)) => Ok(size),
    })?;
    Ok(Cache {
        capacity: optional(layer, &catalog::CACHE_CAPACITY, values::size)?,
        headroom,
        duration: optional(layer, &catalog::CACHE_DURATION, values::duration)?,
    })
}

fn runtime(layer: &Layer, machine: &Machine) -> Result<Runtime, Error> {
    let workers = optional(layer, &catalog::WORKERS, |text| {
        let what = format!("a number of workers from 0 to {MAX_WORKERS}");
        match values::number(text, &what)? {
            count if count > MAX_WORKERS => Err(format!("\"{text}\" is not {what}")),
            count => Ok(NonZeroU16::new(count)),
        }
    })?;
    let default = machine.cores.min(NonZeroU16::new(MAX_WORKERS).unwrap_or(NonZeroU16::MIN));
    Ok(Runtime { workers: workers.flatten().unwrap_or(default), pin: required(layer, &catalog::PIN, values::boolean)? })
}

fn stats(layer: &Layer) -> Result<Stats, Error> {
    Ok(Stats {
        enabled: required(layer, &catalog::STATS_ENABLED, values::boolean)?,
        prefix: required(layer, &catalog::STATS_PREFIX, values::path)?,
        interval: required(layer, &catalog::STATS_INTERVAL, values::seconds)?,
        node: optional(layer, &catalog::STATS_NODE, values::path)?,
    })
}

fn log(layer: &Layer, machine: &Machine) -> Result<Log, Error> {
    if let Some(directives) = &machine.rust_log {
        EnvFilter::builder().parse(directives).map_err(|error| {
            Error::new(format!("RUST_LOG: {error}; write directives as in info,moq_relay=debug, or unset it"))
        })?;
    }
    Ok(Log { level: required(layer, &catalog::LOG_LEVEL, values::level)?, directives: machine.rust_log.clone() })
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn parse<T>(given: &Given, parse: impl FnOnce(&str) -> Result<T, Problem>) -> Result<T, Error> {
    let text = given.texts.first().map_or("", String::as_str);
    parse(text).map_err(|problem| given.error(problem))
}

/// A setting whose default is a value.
fn required<T>(
    layer: &Layer,
    setting: &'static Setting,
    value: impl FnOnce(&str) -> Result<T, Problem>,
) -> Result<T, Error> {
    match layer.or_default(setting) {
        Some(given) => parse(&given, value),
        None => Err(Error::new(format!("--{} is required", setting.flag))),
    }
}

/// A setting without which something is off, or left to a library.
fn optional<T>(
    layer: &Layer,
    setting: &'static Setting,
    value: impl FnOnce(&str) -> Result<T, Problem>,
) -> Result<Option<T>, Error> {
    layer.get(setting).map(|given| parse(given, value)).transpose()
}

fn list<T>(
    layer: &Layer,
    setting: &'static Setting,
    mut value: impl FnMut(&str) -> Result<T, Problem>,
) -> Result<Vec<T>, Error> {
    let Some(given) = layer.get(setting) else { return Ok(Vec::new()) };
    given.texts.iter().map(|text| value(text).map_err(|problem| given.error(problem))).collect()
}

fn paths(layer: &Layer, setting: &'static Setting) -> Vec<PathBuf> {
    layer.get(setting).map(|given| given.texts.iter().map(PathBuf::from).collect()).unwrap_or_default()
}
