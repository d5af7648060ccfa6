//! The names of descriptors: in LISTEN_FDNAMES, the fd store and the document. Each is at most 255 printable ASCII
//! characters without a colon (FDNAME in sd_notify(3)).

use protocol::message::Generation;

/// The document.
pub const STATE: &str = "state";
/// The secret.
pub const SECRET: &str = "secret";
/// Our end of the guard's channel.
pub const GUARD: &str = "guard";
/// The control socket.
pub const CONTROL: &str = "control";
/// The lock of the control socket.
pub const LOCK: &str = "lock";
/// What asks whether there is room, and is left in the fd store when its supervisor ends before the answer.
pub const PROBE: &str = "probe";
/// In LISTEN_FDNAMES: a number that is not handed over.
pub const NOTHING: &str = "-";

/// One socket of a listener, by the position in its group.
#[must_use]
pub fn socket(listener: u64, position: usize) -> String {
    format!("socket.{listener}.{position}")
}

/// Our end of a generation's channel.
#[must_use]
pub fn channel(generation: Generation) -> String {
    format!("channel.{generation}")
}

/// A generation's pidfd.
#[must_use]
pub fn process(generation: Generation) -> String {
    format!("process.{generation}")
}

/// A generation's ledger.
#[must_use]
pub fn ledger(generation: Generation) -> String {
    format!("ledger.{generation}")
}

/// A secret that a child asked to keep; a new number for each, so that no name ever means two files.
#[must_use]
pub fn kept(number: u64) -> String {
    format!("kept.{number}")
}

/// A client of the control socket.
#[must_use]
pub fn client(number: u64) -> String {
    format!("client.{number}")
}

/// A socket of a `.socket` unit, over execve alone. It is nobody's name: the next program finds it like the first one did.
#[must_use]
pub fn offered(number: usize) -> String {
    format!("offered.{number}")
}

/// Whether it is one of the above but the last, so that it can't come from a `.socket` unit unless its operator chose to confuse us.
#[must_use]
pub fn is_ours(name: &str) -> bool {
    let numbered = ["socket.", "channel.", "process.", "ledger.", "kept.", "client."];
    [STATE, SECRET, GUARD, CONTROL, LOCK, PROBE].contains(&name)
        || numbered.iter().any(|prefix| name.starts_with(prefix))
}
