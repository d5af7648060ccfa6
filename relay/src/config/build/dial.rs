//! The dialing side: `[connect]` and `[cluster]`.

use super::{list, optional, paths, required};
use crate::cluster::peer::{Peer, dialable};
use crate::config::catalog;
use crate::config::given::Layer;
use crate::config::types::{Cluster, Connect, ConnectTls, PairFiles};
use crate::config::{Error, values};
use crate::reconnect::{Backoff, Settings};
use moq_net::Versions;

pub(super) fn connect(layer: &Layer) -> Result<Connect, Error> {
    let versions = list(layer, &catalog::CONNECT_VERSION, values::version)?;
    Ok(Connect {
        bind: optional(layer, &catalog::CONNECT_BIND, values::address)?,
        race: required(layer, &catalog::CONNECT_RACE, values::duration)?,
        timeout: required(layer, &catalog::CONNECT_TIMEOUT, values::duration_or_off)?,
        versions: if versions.is_empty() { Versions::all() } else { Versions::from(versions) },
        tls: tls(layer)?,
        reconnect: Settings {
            restart: required(layer, &catalog::GOAWAY_RESTART, values::restart)?,
            once: required(layer, &catalog::CONNECT_ONCE, values::boolean)?,
            backoff: Backoff {
                initial: required(layer, &catalog::BACKOFF_INITIAL, values::first_pause)?,
                multiplier: required(layer, &catalog::BACKOFF_MULTIPLIER, values::multiplier)?,
                max: required(layer, &catalog::BACKOFF_MAX, values::duration)?,
                timeout: required(layer, &catalog::BACKOFF_TIMEOUT, values::duration_or_off)?,
            },
            handover: required(layer, &catalog::GOAWAY_HANDOVER, values::duration)?,
        },
        redirect: required(layer, &catalog::GOAWAY_REDIRECT, values::redirect)?,
    })
}

/// What would silently weaken what else is asked for is refused.
fn tls(layer: &Layer) -> Result<ConnectTls, Error> {
    let tls = ConnectTls {
        roots: paths(layer, &catalog::CONNECT_ROOT),
        system_roots: optional(layer, &catalog::CONNECT_SYSTEM_ROOTS, values::boolean)?,
        fingerprints: list(layer, &catalog::CONNECT_FINGERPRINT, values::fingerprint)?,
        identity: identity(layer)?,
        insecure: required(layer, &catalog::CONNECT_INSECURE, values::boolean)?,
        host_name: optional(layer, &catalog::CONNECT_HOST_NAME, |text| Ok(text.to_owned()))?,
    };
    let authorities = !tls.roots.is_empty() || tls.system_roots == Some(true);
    if tls.insecure && (authorities || !tls.fingerprints.is_empty()) {
        return Err(Error::new(format!(
            "--{} trusts any certificate, and others of --connect-tls say which: give one or the other",
            catalog::CONNECT_INSECURE.flag,
        )));
    }
    if authorities && !tls.fingerprints.is_empty() {
        return Err(Error::new(format!(
            "--{} trusts certificates whoever issued them: leave --{} and --{} out, or it",
            catalog::CONNECT_FINGERPRINT.flag,
            catalog::CONNECT_ROOT.flag,
            catalog::CONNECT_SYSTEM_ROOTS.flag,
        )));
    }
    if !tls.insecure && tls.fingerprints.is_empty() && tls.roots.is_empty() && tls.system_roots == Some(false) {
        return Err(Error::new(format!(
            "--{}=false leaves no one to trust: give --{} or --{}",
            catalog::CONNECT_SYSTEM_ROOTS.flag,
            catalog::CONNECT_ROOT.flag,
            catalog::CONNECT_FINGERPRINT.flag,
        )));
    }
    Ok(tls)
}

fn identity(layer: &Layer) -> Result<Option<PairFiles>, Error> {
    let path = |text: &str| Ok(text.into());
    let cert = optional(layer, &catalog::CONNECT_CERT, path)?;
    let key = optional(layer, &catalog::CONNECT_KEY, path)?;
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some(PairFiles { cert, key })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(Error::new(format!(
            "--{} and --{} go together: give both, or neither",
            catalog::CONNECT_CERT.flag,
            catalog::CONNECT_KEY.flag,
        ))),
    }
}

pub(super) fn cluster(layer: &Layer, connect: &Connect) -> Result<Cluster, Error> {
    let node = optional(layer, &catalog::CLUSTER_NODE, |text| dialable(text).map_err(|error| error.to_string()))?;
    let mut peers: Vec<Peer> = Vec::new();
    if let Some(given) = layer.get(&catalog::CLUSTER_CONNECT) {
        for (number, text) in (1..).zip(&given.texts) {
            let peer = if text.starts_with('{') { Peer::from_json(text) } else { Peer::parse(text) };
            // Not the text: it may carry a credential.
            let peer = peer.map_err(|error| given.error(format!("peer {number}: {error}")))?;
            if node.as_ref().is_some_and(|node| peer.is_at(node)) || peers.contains(&peer) {
                continue;
            }
            if peers.iter().any(|other| other.is_same_place(&peer)) {
                return Err(given.error(format!(
                    "peer {number}: the same relay is listed before it with another cost or token; list it once"
                )));
            }
            peers.push(peer);
        }
    }
    if let Some(bind) = connect.bind.filter(|bind| bind.port() != 0 && !peers.is_empty()) {
        return Err(Error::new(format!(
            "--{} {bind} is a fixed port, which the next generation could not dial from while this one lives: give port 0, \
             or no --{}",
            catalog::CONNECT_BIND.flag,
            catalog::CLUSTER_CONNECT.flag,
        )));
    }
    Ok(Cluster {
        id: optional(layer, &catalog::CLUSTER_ID, values::cluster_id)?,
        max_hops: required(layer, &catalog::CLUSTER_MAX_HOPS, values::hops)?,
        peers,
        token: optional(layer, &catalog::CLUSTER_TOKEN, |text| Ok(text.into()))?,
    })
}
