//! What the state says. The *stable* part, everything but [`Document::exact`], is read by every version: fields are only
//! added, those that are not known are ignored, and a word that is not known means the most careful thing.

use crate::core::Part;
use crate::sockets::MemberShare;
use protocol::message::{Generation, Kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Names the form of [`Document::exact`]. To be raised with every change to what the core is serialized to or to what its
/// states mean, also when the old form would still parse.
pub const FORMAT: u32 = 4;

/// The whole document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Document {
    /// The boot id as 32 hex digits.
    pub boot: String,
    /// The number of the next generation.
    pub next: u32,
    /// What became of the supervisor.
    pub ending: Ending,
    /// The live generations, and a dead one whose sockets wait for a successor.
    pub generations: Vec<GenerationEntry>,
    /// What is listened on.
    pub sockets: SocketsEntry,
    /// The secrets that children asked to keep: by their name, the name of the descriptor.
    pub kept: BTreeMap<String, String>,
    /// The dead whose clients may live on.
    pub mourned: Vec<Generation>,
    /// The ledgers of the live and of the dead.
    pub ledgers: Vec<LedgerEntry>,
    /// The process that sees to what is left when no supervisor goes on.
    pub guard: Option<ProcessEntry>,
    /// Who waits at the control socket; over execve alone.
    pub control: Option<ControlEntry>,
    /// Upgrades that were asked for and not begun, because the supervisor replaces itself first.
    pub triggers: Vec<TriggerEntry>,
    /// The whole core, for a reader of the same [`FORMAT`].
    pub exact: Option<serde_json::Value>,
}

/// What became of the supervisor that wrote the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Nothing: if it is gone, it was killed or executes another self.
    #[default]
    None,
    /// It left, or was about to: its successor begins with an upgrade.
    Left,
    /// It stopped, and nothing lives any more: there is nothing to go on with.
    Stopped,
    /// A word of a later version: taken for `None`.
    #[serde(other)]
    Unknown,
}

/// One generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationEntry {
    /// Which.
    pub generation: Generation,
    /// What it is for.
    pub part: Part,
    /// Its process, once there is one.
    #[serde(default)]
    pub process: Option<ProcessEntry>,
}

/// One ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Whose.
    pub generation: Generation,
    /// The name of its descriptor.
    pub file: String,
    /// Where its clients have to be told from.
    #[serde(default)]
    pub shares: Vec<MemberShare>,
}

/// One process, so that it can be told from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEntry {
    /// Its number.
    pub pid: u32,
    /// When it was started: field 22 of proc_pid_stat(5), in clock ticks since the boot of the machine.
    #[serde(default)]
    pub started: Option<u64>,
}

/// All sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketsEntry {
    /// Whether UDP_GRO is on.
    pub gro: bool,
    /// The number of the next listener.
    pub next: u64,
    /// The listeners.
    pub listeners: Vec<ListenerEntry>,
    /// Who has what of them.
    pub holdings: Vec<HoldingEntry>,
    /// The names of sockets that are only kept open.
    pub stranded: Vec<String>,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerEntry {
    /// Its number.
    pub id: u64,
    /// Its kind.
    pub kind: KindEntry,
    /// What it is bound to.
    pub address: String,
    /// The names of its descriptors: of a group, in the order of their positions.
    pub sockets: Vec<String>,
    /// The file of a unix socket, if it is ours.
    #[serde(default)]
    pub file: Option<FileEntry>,
}

/// [`Kind`], or one of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindEntry {
    /// UDP.
    Quic,
    /// TCP.
    Tcp,
    /// Unix stream.
    Unix,
    /// Not known to this version: its sockets are closed.
    #[serde(other)]
    Unknown,
}

impl From<Kind> for KindEntry {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Quic => Self::Quic,
            Kind::Tcp => Self::Tcp,
            Kind::Unix => Self::Unix,
        }
    }
}

/// A file in the file system that we made, so that no other is ever removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Its permissions.
    pub mode: u32,
}

/// What one generation has of one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingEntry {
    /// Who.
    pub generation: Generation,
    /// Of which listener.
    pub listener: u64,
    /// As the generation calls it.
    pub name: String,
    /// The address as the generation asked for it.
    pub requested: String,
    /// Of a group: the number of its first member.
    #[serde(default)]
    pub first: usize,
    /// Of a group: runs of neighbouring positions, whose member numbers go on from `first`.
    #[serde(default)]
    pub runs: Vec<RunEntry>,
    /// Of a unix socket: the permissions it asked for.
    #[serde(default)]
    pub mode: Option<u32>,
}

/// Neighbouring positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEntry {
    /// The first.
    pub position: usize,
    /// How many.
    pub len: usize,
}

/// The control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlEntry {
    /// Its path.
    pub path: std::path::PathBuf,
    /// Its file.
    pub file: FileEntry,
    /// The connections: the names of their descriptors. Those in [`Document::triggers`] wait for an answer.
    #[serde(default)]
    pub clients: Vec<String>,
}

/// One upgrade that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerEntry {
    /// The connection that waits for the answer, if it came over one.
    #[serde(default)]
    pub client: Option<String>,
    /// Whether the oldest may be ended to make room.
    #[serde(default)]
    pub evict_oldest: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a later version might write: new fields everywhere, new words.
    #[test]
    fn a_document_of_a_later_version_is_understood_as_far_as_it_goes() {
        let text = r#"{
            "boot": "00112233445566778899aabbccddeeff", "next": 9, "ending": "hibernated", "mood": "good",
            "generations": [
                {"generation": 7, "part": "active", "process": {"pid": 70, "started": 5, "cgroup": "x"}, "color": 1},
                {"generation": 8, "part": "rehearsing"}
            ],
            "sockets": {"gro": true, "next": 2, "listeners": [
                {"id": 0, "kind": "quic", "address": "[::]:443", "sockets": ["socket.0.0"], "rate": 5},
                {"id": 1, "kind": "carrier-pigeon", "address": "roof", "sockets": []}
            ], "holdings": [
                {"generation": 7, "listener": 0, "name": "quic", "requested": "[::]:443", "runs": [{"position": 0, "len": 1}]}
            ]},
            "exact": {"not": "ours"}
        }"#;
        let document: Document = serde_json::from_str(text).expect("understood");
        assert_eq!(document.ending, Ending::Unknown);
        assert_eq!(document.generations[0].process, Some(ProcessEntry { pid: 70, started: Some(5) }));
        assert_eq!(document.generations[1].part, Part::Draining);
        assert_eq!(document.sockets.listeners[1].kind, KindEntry::Unknown);
        assert_eq!(document.sockets.holdings[0].first, 0);
    }

    #[test]
    fn an_empty_document_is_one() {
        assert_eq!(serde_json::from_str::<Document>("{}").expect("understood"), Document::default());
    }
}
