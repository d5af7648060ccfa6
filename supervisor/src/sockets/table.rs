//! Which listeners there are, and who holds what of them.

use super::bind;
use super::error::{GrantError, GroError, Warning};
use super::group::{Appended, Group};
use super::listener::{Fresh, Holding, Listener, ListenerId, Listening, MemberShare, Plan, Share};
use super::request::{Address, Request, What};
use super::runs::{Run, place, take_over};
use super::unix::UnixSocket;
use protocol::cid::{Cipher, MAX_MEMBERS, MemberId};
use protocol::message::{Adopted, Generation, Kind, Wanted};
use socket2::Socket;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Every listening socket of the service, and what each generation holds of them.
///
/// Synchronous, and quick: a bind or a steering program takes less than a millisecond. Dropping it closes the sockets
/// and leaves the files of unix sockets; [`Table::retire`] of the last generation removes them.
#[derive(Debug)]
pub struct Table {
    pub(super) cipher: Cipher,
    pub(super) listeners: BTreeMap<ListenerId, Listener>,
    pub(super) holdings: BTreeMap<Generation, Vec<Holding>>,
    /// What UDP_GRO is set to at members that are bound from now on.
    pub(super) gro: bool,
    pub(super) next: ListenerId,
    /// Listening sockets that are not ours to close, for listeners with their addresses.
    pub(super) offered: Vec<(Kind, Address, Socket)>,
    /// Sockets that are kept open, because to close them would harm others.
    pub(super) stranded: Vec<(String, OwnedFd)>,
}

/// What a generation gets.
#[derive(Debug)]
pub struct Granted<'a> {
    /// In the order in which they were wanted.
    pub listeners: Vec<Handed<'a>>,
    /// What works, but not as well as it should.
    pub warnings: Vec<Warning>,
}

/// One listener to be handed over.
#[derive(Debug)]
pub struct Handed<'a> {
    /// What `adopt` says about it.
    pub socket: Adopted,
    /// Its descriptors, as many as `socket.members`.
    pub fds: Vec<BorrowedFd<'a>>,
}

impl Table {
    /// No listeners yet. The cipher is that of the connection IDs.
    #[must_use]
    pub const fn new(cipher: Cipher) -> Self {
        Self {
            cipher,
            listeners: BTreeMap::new(),
            holdings: BTreeMap::new(),
            gro: false,
            next: ListenerId::FIRST,
            offered: Vec::new(),
            stranded: Vec::new(),
        }
    }

    /// Another cipher, for a new boot id. It is used from the next [`Table::steer`] on.
    pub fn rekey(&mut self, cipher: Cipher) {
        self.cipher = cipher;
    }

    /// Finds or binds what `generation` wants. Listeners of one kind are the same if they have the same address, or
    /// if they had the same name and the same address with port 0; so port 0 stays at the port first found.
    ///
    /// With `takes_over` it gets the very members of that dead generation, whose packets wait in their queues (or, with
    /// `flush`, are thrown away). If it wants fewer, the packets at the others are lost, as on a wire: clients send again,
    /// to the members that are served. If it wants more, the others come on top.
    ///
    /// All other members that were used before have their queues emptied.
    ///
    /// # Errors
    /// Names the listener and the remedy. Nothing has changed then, and what was bound meanwhile is closed again.
    pub fn grant(
        &mut self,
        generation: Generation,
        wanted: &[Wanted],
        takes_over: Option<Generation>,
        flush: bool,
    ) -> Result<Granted<'_>, GrantError> {
        if self.holdings.contains_key(&generation) {
            return Err(GrantError::Again { generation });
        }
        let requests = Request::parse_all(wanted)?;
        let plans: Vec<Plan> = requests.into_iter().map(|request| self.plan(request, takes_over)).collect();
        self.check_overlaps(&plans)?;
        self.check_members(&plans)?;
        let mut warnings = Vec::new();
        let fresh = self.bind_all(&plans, &mut warnings)?;

        let mut holdings = Vec::with_capacity(plans.len());
        let mut first = 0;
        for (plan, fresh) in plans.into_iter().zip(fresh) {
            let share = match &plan.request.what {
                What::Quic { members, .. } => {
                    let share = Share::Members { first, runs: plan.runs.clone() };
                    first += usize::from(*members);
                    share
                }
                What::Tcp { .. } => Share::Whole { mode: None },
                What::Unix { mode, .. } => Share::Whole { mode: Some(*mode) },
            };
            let waiting = if flush { Vec::new() } else { self.runs_of(takes_over, plan.found) };
            let listener = self.take(&plan, fresh, &waiting);
            holdings.push(Holding { listener, requested: plan.request.address(), name: plan.request.name, share });
        }
        self.holdings.insert(generation, holdings);
        warnings.extend(self.apply_modes());
        Ok(Granted { listeners: self.handed(generation), warnings })
    }

    /// What [`Table::grant`] gave to this generation; empty for one that has nothing.
    #[must_use]
    pub fn handed(&self, generation: Generation) -> Vec<Handed<'_>> {
        let holdings = self.holdings.get(&generation).map(Vec::as_slice).unwrap_or_default();
        holdings.iter().filter_map(|holding| self.hand(holding)).collect()
    }

    /// Which members of which listeners this generation has; empty for one that has nothing.
    #[must_use]
    pub fn shares(&self, generation: Generation) -> Vec<MemberShare> {
        let holdings = self.holdings.get(&generation).map(Vec::as_slice).unwrap_or_default();
        holdings.iter().filter_map(Holding::share).collect()
    }

    /// Frees what this generation holds, and closes the listeners that nobody else does. The file of a unix socket goes
    /// too, unless someone has put another in its place. A generation that holds nothing is fine.
    pub fn retire(&mut self, generation: Generation) -> Vec<Warning> {
        self.holdings.remove(&generation);
        let wanted: Vec<ListenerId> = self.all_holdings().map(|(_, holding)| holding.listener).collect();
        for (_, listener) in self.listeners.extract_if(.., |id, _| !wanted.contains(id)) {
            listener.socket.close();
        }
        self.apply_modes()
    }

    /// Sets UDP_GRO on every member of every group, those that nobody serves included, and reads it back.
    ///
    /// # Errors
    /// Some member has not got it; others may have.
    pub fn gro(&mut self, on: bool) -> Result<(), GroError> {
        self.gro = on;
        self.groups().try_for_each(|(_, group)| group.gro(on))
    }

    /// How many UDP sockets there are, free ones included; at most [`MAX_MEMBERS`].
    #[must_use]
    pub fn members(&self) -> usize {
        self.groups().map(|(_, group)| group.len()).sum()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (ListenerId, &Group)> {
        self.listeners.iter().filter_map(|(id, listener)| listener.socket.group().map(|group| (*id, group)))
    }

    pub(super) fn all_holdings(&self) -> impl Iterator<Item = (Generation, &Holding)> {
        self.holdings.iter().flat_map(|(generation, holdings)| holdings.iter().map(|holding| (*generation, holding)))
    }

    fn plan(&self, request: Request, takes_over: Option<Generation>) -> Plan {
        let found = self.find(&request);
        let (What::Quic { members, .. }, Some(id)) = (&request.what, found) else {
            let runs = match request.what {
                What::Quic { members, .. } => vec![Run { position: 0, len: members.into() }],
                What::Tcp { .. } | What::Unix { .. } => Vec::new(),
            };
            return Plan { request, found, runs };
        };
        let len = self.group(id).map_or(0, Group::len);
        let held: Vec<Run> = self.all_holdings().flat_map(|(_, holding)| holding.runs_of(id)).copied().collect();
        let dead = self.runs_of(takes_over, found);
        let runs = if dead.is_empty() {
            vec![place(len, &held, usize::from(*members))]
        } else {
            take_over(len, &held, &dead, usize::from(*members))
        };
        Plan { request, found, runs }
    }

    fn find(&self, request: &Request) -> Option<ListenerId> {
        let address = request.address();
        if address.any_port() {
            let same = |holding: &Holding| {
                holding.name == request.name
                    && holding.requested == address
                    && self.listeners.get(&holding.listener).is_some_and(|found| found.kind() == request.kind())
            };
            return self.all_holdings().find(|(_, holding)| same(holding)).map(|(_, holding)| holding.listener);
        }
        let same = |listener: &Listener| listener.kind() == request.kind() && listener.address == address;
        self.listeners.iter().find(|(_, listener)| same(listener)).map(|(id, _)| *id)
    }

    fn check_overlaps(&self, plans: &[Plan]) -> Result<(), GrantError> {
        let address = |plan: &Plan| match plan.found.and_then(|id| self.listeners.get(&id)) {
            Some(listener) => listener.address.clone(),
            None => plan.request.address(),
        };
        for (index, plan) in plans.iter().enumerate() {
            let (kind, ours) = (plan.request.kind(), address(plan));
            let wanted = plans.iter().take(index).filter(|other| other.request.kind() == kind);
            let wanted = wanted.map(|other| (other.request.name.as_str(), address(other)));
            let held = self.listeners.iter().filter(|(id, other)| plan.found != Some(**id) && other.kind() == kind);
            let held = held.map(|(id, other)| (self.name_of(*id), other.address.clone()));
            if let Some((other, other_address)) = wanted.chain(held).find(|(_, other)| ours.overlaps(other)) {
                return Err(GrantError::Overlap {
                    name: plan.request.name.clone(),
                    address: ours.to_string(),
                    other: other.to_owned(),
                    other_address: other_address.to_string(),
                });
            }
        }
        Ok(())
    }

    fn check_members(&self, plans: &[Plan]) -> Result<(), GrantError> {
        let mut total = self.members();
        for plan in plans {
            let wanted = self.missing(plan);
            total += wanted;
            if total > MAX_MEMBERS {
                return Err(GrantError::Members { name: plan.request.name.clone(), wanted, total });
            }
        }
        Ok(())
    }

    /// How many sockets have to be bound for the runs of a plan.
    fn missing(&self, plan: &Plan) -> usize {
        let len = plan.found.and_then(|id| self.group(id)).map_or(0, Group::len);
        plan.runs.iter().map(|run| run.end()).max().map_or(0, |end| end.saturating_sub(len))
    }

    fn bind_all(&self, plans: &[Plan], warnings: &mut Vec<Warning>) -> Result<Vec<Fresh>, GrantError> {
        let mut all = Vec::with_capacity(plans.len());
        for plan in plans {
            match self.bind(plan, warnings) {
                Ok(fresh) => all.push(fresh),
                Err(error) => {
                    all.into_iter().for_each(Fresh::close);
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    fn bind(&self, plan: &Plan, warnings: &mut Vec<Warning>) -> Result<Fresh, GrantError> {
        let name = &plan.request.name;
        if let Some(id) = plan.found {
            let Some(group) = self.group(id) else { return Ok(Fresh::Nothing) };
            return Appended::bind(name, group.address(), self.missing(plan), self.gro).map(Fresh::Members);
        }
        Ok(Fresh::Listener(match &plan.request.what {
            What::Quic { address, members } => {
                let (group, small) = Group::bind(name, *address, usize::from(*members), self.gro)?;
                warnings.extend(small);
                Listener { address: Address::Inet(group.address()), socket: Listening::Quic(group) }
            }
            What::Tcp { address } => {
                let offered = self.offered(Kind::Tcp, &Address::Inet(*address));
                let socket = offered.map_or_else(|| bind::tcp(name, *address), Ok)?;
                let address = bind::local(&socket).unwrap_or(*address);
                Listener { address: Address::Inet(address), socket: Listening::Tcp(socket) }
            }
            What::Unix { path, mode } => {
                let offered = self.offered(Kind::Unix, &Address::Unix(path.clone()));
                let offered = offered.map(|socket| UnixSocket::restored(socket, path.clone(), None));
                let socket = offered.map_or_else(|| UnixSocket::bind(name, path, *mode), Ok)?;
                Listener { address: Address::Unix(path.clone()), socket: Listening::Unix(socket) }
            }
        }))
    }

    /// Makes what was bound part of the table, and empties the queues of used members but those of `waiting`.
    fn take(&mut self, plan: &Plan, fresh: Fresh, waiting: &[Run]) -> ListenerId {
        if let Fresh::Listener(listener) = fresh {
            let id = self.next;
            self.next = id.next();
            self.listeners.insert(id, listener);
            return id;
        }
        let id = plan.found.unwrap_or(self.next);
        let Some(Listening::Quic(group)) = self.listeners.get_mut(&id).map(|listener| &mut listener.socket) else {
            return id;
        };
        for position in plan.runs.iter().flat_map(|run| run.positions()) {
            if !waiting.iter().any(|run| run.positions().contains(&position)) {
                group.flush(position);
            }
        }
        if let Fresh::Members(appended) = fresh {
            group.append(appended);
        }
        id
    }

    /// Gives each unix socket the permissions that the youngest generation wants.
    fn apply_modes(&mut self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for (id, listener) in &mut self.listeners {
            let Listening::Unix(socket) = &mut listener.socket else { continue };
            let holdings = self.holdings.values().rev().flatten();
            let mode = holdings.filter(|holding| holding.listener == *id).find_map(|holding| holding.share.mode());
            let Some(mode) = mode else { continue };
            if let Err(error) = socket.set_mode(mode) {
                warnings.push(Warning::Mode { path: listener.address.to_string(), mode, error: error.to_string() });
            }
        }
        warnings
    }

    fn hand(&self, holding: &Holding) -> Option<Handed<'_>> {
        let listener = self.listeners.get(&holding.listener)?;
        let (members, fds) = match (&listener.socket, &holding.share) {
            (Listening::Quic(group), Share::Members { first, runs }) => {
                let fds: Vec<_> = runs.iter().flat_map(|run| group.members(*run)).collect();
                let numbers = (*first..).filter_map(|number| MemberId::new(u16::try_from(number).ok()?));
                (numbers.take(fds.len()).map(MemberId::get).collect(), fds)
            }
            (Listening::Tcp(socket), _) => (vec![0], vec![socket.as_fd()]),
            (Listening::Unix(socket), _) => (vec![0], vec![socket.socket().as_fd()]),
            (Listening::Quic(_), Share::Whole { .. }) => return None,
        };
        let (name, address) = (holding.name.clone(), listener.address.to_string());
        Some(Handed { socket: Adopted { name, kind: listener.kind(), address, members }, fds })
    }

    pub(super) fn group(&self, id: ListenerId) -> Option<&Group> {
        self.listeners.get(&id).and_then(|listener| listener.socket.group())
    }

    fn runs_of(&self, generation: Option<Generation>, listener: Option<ListenerId>) -> Vec<Run> {
        let (Some(generation), Some(listener)) = (generation, listener) else { return Vec::new() };
        let holdings = self.holdings.get(&generation).map(Vec::as_slice).unwrap_or_default();
        holdings.iter().flat_map(|holding| holding.runs_of(listener)).copied().collect()
    }

    fn name_of(&self, id: ListenerId) -> &str {
        self.all_holdings().find(|(_, holding)| holding.listener == id).map_or("", |(_, holding)| &holding.name)
    }
}
