//! From descriptors and document to something that can go on: the one way in, however they came.

use super::document::{
    ControlEntry, Document, Ending, FORMAT, GenerationEntry, LedgerEntry, ProcessEntry, TriggerEntry,
};
use super::inherited::Inherited;
use super::names;
use super::process::Whereabouts;
use super::slots::{Slots, Unreadable};
use crate::core::{Core, Settings, Survivor, Time};
use crate::sockets::{MemberShare, Table};
use crate::sys::pidfd::Pidfd;
use protocol::channel::{Channel, MemfdError, read_memfd};
use protocol::cid::Cipher;
use protocol::keys::{BootId, Secret};
use protocol::message::{Generation, MAX_KEPT_BYTES};
use std::os::fd::{AsFd as _, OwnedFd};

/// Everything that an earlier supervisor left.
#[derive(Debug)]
pub struct Restored {
    /// Where the document is written from now on.
    pub slots: Slots,
    /// What all keys are derived from.
    pub secret: Secret,
    /// The memfd that it was in.
    pub secret_file: OwnedFd,
    /// Names the cold start.
    pub boot: BootId,
    /// The lifecycle, which waits for [`crate::core::Event::Resume`].
    pub core: Core,
    /// The sockets.
    pub table: Table,
    /// The secrets of children.
    pub kept: Vec<KeptFile>,
    /// The ledgers of the live and of the dead.
    pub ledgers: Vec<LedgerFile>,
    /// The generations.
    pub generations: Vec<Found>,
    /// Begin with an upgrade.
    pub upgrade: bool,
    /// Our end of the guard's channel, and its process.
    pub guard: Option<(OwnedFd, ProcessEntry)>,
    /// The control socket, if it came along.
    pub control: Option<ControlEntry>,
    /// Upgrades that were asked for and not begun.
    pub triggers: Vec<TriggerEntry>,
    /// What an operator should look at, for good.
    pub alarms: Vec<String>,
    /// Lines for the log.
    pub lines: Vec<String>,
}

/// One secret of a child.
#[derive(Debug)]
pub struct KeptFile {
    /// Its name, as the child called it.
    pub name: String,
    /// The number in the descriptor's name.
    pub number: u64,
    /// The memfd that it is in.
    pub file: OwnedFd,
}

/// One ledger.
#[derive(Debug)]
pub struct LedgerFile {
    /// Whose.
    pub generation: Generation,
    /// Where its clients have to be told from.
    pub shares: Vec<MemberShare>,
    /// The memfd that it is in.
    pub file: OwnedFd,
}

/// What there is of one generation.
#[derive(Debug)]
pub struct Found {
    /// Which.
    pub generation: Generation,
    /// Its process as recorded; `None` for one that was never started.
    pub entry: Option<ProcessEntry>,
    /// What has become of that; of one that was never started, [`Whereabouts::Ended`].
    pub process: Whereabouts,
    /// Our end of its channel; `None`: it is lost.
    pub channel: Option<Channel>,
}

/// What can be made of what was inherited.
#[derive(Debug)]
pub enum Start {
    /// Nothing: a cold start. The lines are for the log.
    Cold(Vec<String>),
    /// A supervisor's work.
    Warm(Box<Restored>),
}

/// Why a document is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// Neither slot.
    #[error(transparent)]
    Slots(#[from] Unreadable),
    /// Not JSON, or not of this kind.
    #[error("read the state: it is no document of a supervisor")]
    Document(#[from] serde_json::Error),
    /// No boot id: the connection IDs of the live generations can't be understood.
    #[error("read the state: it has no boot id")]
    Boot,
    /// There is no secret.
    #[error("read the state: the secret is missing")]
    NoSecret,
    /// What should be the secret is not.
    #[error("read the state: the secret can't be read")]
    Secret(#[source] MemfdError),
}

/// What the document in this file says, and whether it can be taken exactly as it is.
///
/// # Errors
/// It says nothing that could be gone on with.
pub fn read(file: OwnedFd) -> Result<(Slots, Document, bool), Unusable> {
    let (slots, content) = Slots::open(file)?;
    let document: Document = serde_json::from_slice(&content.bytes)?;
    boot(&document)?;
    Ok((slots, document, content.format == FORMAT))
}

/// Finds out what there is to go on with. What is not needed stays in `fds`.
#[must_use]
pub fn restore(fds: &mut Inherited, settings: &Settings, seed: u64, now: Time) -> Start {
    let Some(file) = fds.one(names::STATE) else {
        if !fds.has_state() {
            return Start::Cold(Vec::new());
        }
        return useless(fds, "there are several of them");
    };
    let read = read(file).and_then(|(slots, document, same)| {
        let file = fds.one(names::SECRET).ok_or(Unusable::NoSecret)?;
        let bytes = read_memfd(file.as_fd(), SECRET_BYTES).map_err(Unusable::Secret)?;
        let bytes: [u8; SECRET_BYTES] = bytes.as_slice().try_into().map_err(|_| Unusable::NoSecret)?;
        Ok((slots, document, same, Secret::from_bytes(bytes), file))
    });
    let (slots, document, same_format, secret, secret_file) = match read {
        Ok(read) => read,
        Err(error) => return useless(fds, &with_causes(&error)),
    };
    if document.ending == Ending::Stopped {
        return Start::Cold(Vec::new());
    }
    let mut lines = Vec::new();
    let core = exact(&document, same_format, settings).unwrap_or_else(|why| {
        lines.push(format!("the state is {why}: the active generation stays, the others drain"));
        let survivor = |entry: &GenerationEntry| {
            let pid = entry.process.map(|process| process.pid);
            Survivor { generation: entry.generation, pid, part: entry.part }
        };
        let survivors: Vec<Survivor> = document.generations.iter().map(survivor).collect();
        Core::degraded(settings.clone(), seed, now, document.next, document.sockets.gro, &survivors, &document.mourned)
    });
    let boot = boot(&document).unwrap_or_else(|_| BootId::from_bytes([0; 16]));
    let cipher = Cipher::new(&secret.cid_key(&boot));
    let (mut table, stranded) = Table::restore(cipher, &document.sockets, fds);
    // What was to be retired, and was not yet.
    let known: Vec<Generation> = core.survivors().iter().map(|survivor| survivor.generation).collect();
    for generation in table.holders().into_iter().filter(|generation| !known.contains(generation)) {
        lines.extend(table.retire(generation).iter().map(ToString::to_string));
    }
    let generations = core.survivors().iter().map(|survivor| found(survivor.generation, &document, fds)).collect();
    let kept = document
        .kept
        .iter()
        .filter_map(|(name, file)| match kept(name, file, fds) {
            Ok(kept) => Some(kept),
            Err(why) => {
                lines.push(format!("the kept secret {name} is lost: {why}"));
                None
            }
        })
        .collect();
    let mourned_ones = core.mourned();
    let mourned = document
        .ledgers
        .iter()
        .filter(|entry| mourned_ones.contains(&entry.generation) || known.contains(&entry.generation));
    let ledgers = mourned
        .filter_map(|LedgerEntry { generation, file, shares }| {
            let Some(file) = fds.one(file) else {
                lines.push(format!("the ledger of generation {generation} is lost: its clients hear late of its end"));
                return None;
            };
            Some(LedgerFile { generation: *generation, shares: shares.clone(), file })
        })
        .collect();
    Start::Warm(Box::new(Restored {
        slots,
        secret,
        secret_file,
        boot,
        upgrade: document.ending == Ending::Left,
        core,
        table,
        kept,
        ledgers,
        generations,
        guard: fds.one(names::GUARD).zip(document.guard),
        control: document.control,
        triggers: document.triggers,
        alarms: stranded.iter().map(ToString::to_string).collect(),
        lines,
    }))
}

/// The core itself, or in a word why not.
fn exact(document: &Document, same_format: bool, settings: &Settings) -> Result<Core, String> {
    if !same_format {
        return Err("of another version".to_owned());
    }
    let value = document.exact.clone().ok_or("not complete")?;
    let saved: Core = serde_json::from_value(value).map_err(|error| format!("not understood ({error})"))?;
    Core::restored(saved, settings.clone()).ok_or_else(|| "contradictory".to_owned())
}

fn found(generation: Generation, document: &Document, fds: &mut Inherited) -> Found {
    let entry = document.generations.iter().find(|entry| entry.generation == generation);
    let entry = entry.and_then(|entry| entry.process);
    let process = match fds.one(&names::process(generation)) {
        Some(fd) => Whereabouts::Lives(Pidfd::from(fd)),
        None => entry.map_or(Whereabouts::Ended, ProcessEntry::find),
    };
    let channel = fds.one(&names::channel(generation)).and_then(|fd| Channel::from_fd(fd).ok());
    Found { generation, entry, process, channel }
}

fn kept(name: &str, file: &str, fds: &mut Inherited) -> Result<KeptFile, String> {
    let number =
        file.rsplit('.').next().and_then(|number| number.parse().ok()).ok_or("its descriptor has no number")?;
    let file = fds.one(file).ok_or("its descriptor is missing")?;
    read_memfd(file.as_fd(), MAX_KEPT_BYTES).map_err(|error| with_causes(&error))?;
    Ok(KeptFile { name: name.to_owned(), number, file })
}

fn useless(fds: &mut Inherited, why: &str) -> Start {
    end_strangers(fds);
    let what = "what an earlier supervisor left can't be used; its generations are told to drain";
    Start::Cold(vec![format!("{what}: {why}")])
}

/// Tells every process that was left to drain: nobody could go on with it.
fn end_strangers(fds: &mut Inherited) {
    let prefix = names::process(Generation(0));
    let prefix = prefix.trim_end_matches('0');
    let names: Vec<String> =
        fds.rest().map(|(name, _)| name).filter(|name| name.starts_with(prefix)).map(str::to_owned).collect();
    for process in names.iter().filter_map(|name| fds.one(name)) {
        // It may have ended.
        let _ = Pidfd::from(process).send_signal(libc::SIGTERM);
    }
}

fn boot(document: &Document) -> Result<BootId, Unusable> {
    let mut bytes = [0; 16];
    hex::decode_to_slice(&document.boot, &mut bytes).map_err(|_| Unusable::Boot)?;
    Ok(BootId::from_bytes(bytes))
}

/// In one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

const SECRET_BYTES: usize = 32;

#[cfg(test)]
mod tests;
