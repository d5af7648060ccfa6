//! Endpoints on members.

use super::crypto::{ResetSigner, TokenKey};
use super::filter::Filter;
use super::record::MemberLedger;
use super::socket::{MemberCounters, MemberSocket};
use crate::child::{Adoption, Member};
use crate::cid::{Cipher, Generator, HeirSet, MemberId, Tag};
use crate::keys::ChildKeys;
use crate::ledger::Ledger;
use crate::message::Generation;
use nix::sys::socket::{setsockopt, sockopt::UdpGroSegment};
use quinn::{Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use zeroize::Zeroizing;

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
    ledger: Option<Arc<Ledger>>,
    ledgers: Mutex<HashMap<MemberId, Arc<MemberLedger>>>,
    /// For what is sent beside quinn; each lives as long as its endpoint.
    sockets: Mutex<HashMap<MemberId, Weak<MemberSocket>>>,
    /// Unasked resets are sent by one task at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
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
    /// Who has to be told if this process dies; to be told when a connection has ended. `None`: nobody keeps it.
    pub ledger: Option<Arc<MemberLedger>>,
}

impl Endpoints {
    /// As adopted.
    #[must_use]
    pub fn new(adoption: &Adoption) -> Self {
        Self::make(adoption.generation, Arc::clone(&adoption.keys), adoption.gro, adoption.ledger.clone())
    }

    /// For a server that is not adopted, with keys and a generation of its own; within 1..=65535, else no endpoint can
    /// be made.
    #[must_use]
    pub fn with_keys(generation: Generation, keys: Arc<ChildKeys>, gro: bool) -> Self {
        Self::make(generation, keys, gro, None)
    }

    fn make(generation: Generation, keys: Arc<ChildKeys>, gro: bool, ledger: Option<Arc<Ledger>>) -> Self {
        let cipher = Arc::new(Cipher::new(&keys.cid));
        Self(Arc::new(Shared {
            generation,
            gro,
            keys,
            cipher,
            heirs: HeirSet::new(),
            generators: Mutex::default(),
            ledger,
            ledgers: Mutex::default(),
            sockets: Mutex::default(),
            turn: Arc::default(),
        }))
    }

    pub(super) fn generation(&self) -> Generation {
        self.0.generation
    }

    pub(super) fn cipher(&self) -> &Cipher {
        &self.0.cipher
    }

    /// Whose turn it is to send unasked resets.
    pub(super) fn turn(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.0.turn)
    }

    /// The socket of an open member.
    pub(super) fn socket(&self, member: MemberId) -> Option<Arc<MemberSocket>> {
        self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner).get(&member)?.upgrade()
    }

    /// The dead generations that all these endpoints answer for; [`Self::inherit`] extends it.
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
        let generator = self.generator(member)?;
        let mut config = EndpointConfig::new(Arc::new(ResetSigner {
            cipher: Arc::clone(&shared.cipher),
            tag: self.tag(member)?,
            minted: generator.minted(),
            own: shared.keys.reset.clone(),
            heirs: shared.heirs.clone(),
        }));
        config.cid_generator(move || Box::new(generator.clone()));
        // quinn would send one per 20 ms and endpoint, which leaves 10 000 clients of a dead generation waiting for
        // 200 s; and as it reads the clock once for a whole batch of packets, any interval is one reset a batch. The
        // generator has a budget in place of it.
        config.min_reset_interval(Duration::ZERO);
        Ok(config)
    }

    fn tag(&self, member: MemberId) -> io::Result<Tag> {
        let generation = self.0.generation;
        Tag::new(generation, member).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("generation {generation} is not within 1 to 65535"))
        })
    }

    fn generator(&self, member: MemberId) -> io::Result<Generator> {
        let shared = &*self.0;
        let mut generators = shared.generators.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(generator) = generators.get(&member) {
            return Ok(generator.clone());
        }
        let cipher = Arc::clone(&shared.cipher);
        let generator = Generator::new(cipher, self.tag(member)?, shared.heirs.clone());
        generators.insert(member, generator.clone());
        Ok(generator)
    }

    /// The member's section of the ledger, if there is one.
    fn ledger(&self, member: MemberId, generator: &Generator) -> Option<Arc<MemberLedger>> {
        let mut ledgers = self.0.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ledger) = ledgers.get(&member) {
            return Some(Arc::clone(ledger));
        }
        let writer = self.0.ledger.as_ref()?.writer(member)?;
        let ledger = Arc::new(MemberLedger::new(writer, generator.minted()));
        ledgers.insert(member, Arc::clone(&ledger));
        Some(ledger)
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
        let tag = self.tag(member.id)?;
        let handle = member.socket.try_clone()?;
        let runtime = Arc::new(TokioRuntime);
        let inner = runtime.wrap_udp_socket(member.socket)?;
        if !shared.gro {
            // quinn has just turned it on. While other generations live, merging would bring us their datagrams.
            setsockopt(&handle, UdpGroSegment, &false)?;
        }
        let counters = Arc::new(MemberCounters::new(shared.heirs.clone()));
        let filter = Filter::new(Arc::clone(&shared.cipher), tag, shared.heirs.clone());
        let ledger = self.ledger(member.id, &self.generator(member.id)?);
        let socket =
            Arc::new(MemberSocket { inner, handle, filter, counters: Arc::clone(&counters), ledger: ledger.clone() });
        let sockets = &mut shared.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.insert(member.id, Arc::downgrade(&socket));
        let server = server.map(|mut server| {
            self.share_tokens(&mut server);
            server
        });
        let endpoint = Endpoint::new_with_abstract_socket(config, server, socket, runtime)?;
        Ok(MemberEndpoint { id: member.id, endpoint, counters, ledger })
    }
}

#[cfg(test)]
mod tests;
