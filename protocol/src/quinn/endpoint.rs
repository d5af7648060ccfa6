//! Endpoints on members.

use super::crypto::{ResetSigner, TokenKey};
use super::filter::Filter;
use super::socket::{MemberCounters, MemberSocket};
use crate::child::{Adoption, Member};
use crate::cid::{Cipher, Generator, HeirSet, MemberId, Tag};
use crate::keys::ChildKeys;
use crate::message::Generation;
use nix::sys::socket::{setsockopt, sockopt::UdpGroSegment};
use quinn::{Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zeroize::Zeroizing;

/// The shortest time between two stateless resets of one endpoint. quinn's 20 ms would tell the 10 000 clients of a dead
/// generation within 200 s, which is too late to be of use; this takes a second. It can't be abused to flood: a reset
/// is shorter than what caused it, and caused only by an ID that we minted.
pub const MIN_RESET_INTERVAL: Duration = Duration::from_micros(100);

/// Makes the endpoints of one generation; clones share everything, so each worker thread can make its own.
#[derive(Clone, Debug)]
pub struct Endpoints(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    generation: Generation,
    gro: bool,
    keys: Arc<ChildKeys>,
    cipher: Arc<Cipher>,
    heirs: HeirSet,
    /// One per member for as long as this generation lives: a second one would mint the same IDs again.
    generators: Mutex<HashMap<MemberId, Generator>>,
}

/// A member with an endpoint on it.
#[derive(Clone, Debug)]
pub struct MemberEndpoint {
    /// Which member.
    pub id: MemberId,
    /// Accepts, and dials, on its socket.
    pub endpoint: Endpoint,
    /// What came in.
    pub counters: Arc<MemberCounters>,
}

impl Endpoints {
    /// As adopted.
    #[must_use]
    pub fn new(adoption: &Adoption) -> Self {
        Self::with_keys(adoption.generation, Arc::clone(&adoption.keys), adoption.gro)
    }

    /// For a server that is not adopted, with keys and a generation of its own; within 1..=65535, else no endpoint can
    /// be made.
    #[must_use]
    pub fn with_keys(generation: Generation, keys: Arc<ChildKeys>, gro: bool) -> Self {
        let cipher = Arc::new(Cipher::new(&keys.cid));
        let (heirs, generators) = (HeirSet::new(), Mutex::default());
        Self(Arc::new(Shared { generation, gro, keys, cipher, heirs, generators }))
    }

    /// The dead generations that all these endpoints answer for; extend it when `heir` comes.
    #[must_use]
    pub fn heirs(&self) -> &HeirSet {
        &self.0.heirs
    }

    /// Makes a server configuration honour the address tokens of other generations. [`Self::open`] does it by itself;
    /// do it yourself before [`Endpoint::set_server_config`].
    pub fn share_tokens(&self, config: &mut ServerConfig) {
        config.token_key(Arc::new(TokenKey::new(Zeroizing::new(self.0.keys.token))));
    }

    /// What [`Self::open`] uses, to be changed in other respects.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], for the generation.
    pub fn config(&self, member: MemberId) -> io::Result<EndpointConfig> {
        let shared = &*self.0;
        let mut generators = shared.generators.lock().unwrap_or_else(PoisonError::into_inner);
        let generator = match generators.get(&member) {
            Some(generator) => generator.clone(),
            None => {
                let cipher = Arc::clone(&shared.cipher);
                let new = Generator::new(cipher, shared.generation, member, shared.heirs.clone());
                let new = new.ok_or_else(|| invalid_generation(shared.generation))?;
                generators.entry(member).insert_entry(new).get().clone()
            }
        };
        let mut config = EndpointConfig::new(Arc::new(ResetSigner {
            cipher: Arc::clone(&shared.cipher),
            own: shared.keys.reset.clone(),
            heirs: shared.heirs.clone(),
        }));
        config.cid_generator(move || Box::new(generator.clone()));
        config.min_reset_interval(MIN_RESET_INTERVAL);
        Ok(config)
    }

    /// Makes an endpoint on a member; a tokio runtime with I/O and time must run, and drives it.
    ///
    /// # Errors
    ///
    /// When the runtime does not take the socket, or the generation fits into no connection ID.
    pub fn open(&self, member: Member, server: Option<ServerConfig>) -> io::Result<MemberEndpoint> {
        let config = self.config(member.id)?;
        self.open_with(member, config, server)
    }

    /// As [`Self::open`], with a changed [`Self::config`].
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_with(
        &self,
        member: Member,
        config: EndpointConfig,
        server: Option<ServerConfig>,
    ) -> io::Result<MemberEndpoint> {
        let shared = &*self.0;
        let tag = Tag::new(shared.generation, member.id).ok_or_else(|| invalid_generation(shared.generation))?;
        let handle = member.socket.try_clone()?;
        let runtime = Arc::new(TokioRuntime);
        let inner = runtime.wrap_udp_socket(member.socket)?;
        if !shared.gro {
            // quinn has just turned it on. While other generations live, merging would bring us their datagrams.
            setsockopt(&handle, UdpGroSegment, &false)?;
        }
        let counters = Arc::new(MemberCounters::default());
        let filter = Filter::new(Arc::clone(&shared.cipher), tag, shared.heirs.clone());
        let socket = Arc::new(MemberSocket { inner, filter, counters: Arc::clone(&counters) });
        let server = server.map(|mut server| {
            self.share_tokens(&mut server);
            server
        });
        let endpoint = Endpoint::new_with_abstract_socket(config, server, socket, runtime)?;
        Ok(MemberEndpoint { id: member.id, endpoint, counters })
    }
}

fn invalid_generation(generation: Generation) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("generation {generation} is not within 1 to 65535"))
}

#[cfg(test)]
mod tests;
