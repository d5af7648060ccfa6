//! Who has to be told when a generation dies: a file in shared memory in which a server keeps the address and the last
//! connection ID of each client, so that its heir can send each a stateless reset (RFC 9000 section 10.3) unasked.
//!
//! The supervisor makes it ([`create`]), the server writes it (`Ledger`, `Writer`), the heir reads it ([`Reader`]) and
//! trusts none of it. `docs/protocol.md` specifies the layout for other languages, `docs/design/ledger.md` has the
//! reasons.
//!
//! ```text
//! header (64 bytes) | section of member 0 | section of member 1 | ...
//! section: used slots (8 bytes), padding to 64 bytes | slot 0 (64 bytes) | slot 1 | ...
//! ```

mod layout;
mod reader;
mod slot;
#[cfg(feature = "child")]
mod writer;

pub use layout::{LedgerError, MAX_SLOTS, SLOT_LEN, create};
pub use reader::Reader;
pub use slot::Entry;
#[cfg(feature = "child")]
pub use writer::{Ledger, Writer};

use std::time::Duration;

/// How long a client lives on, at most, when it hears nothing any more: the idle timeout that `hello` names, 30 s if it names
/// none, and 10 s, because three probe timeouts can be longer (RFC 9000 section 10.1).
#[must_use]
pub fn max_silence(idle_timeout: Option<Duration>) -> Duration {
    idle_timeout.unwrap_or(Duration::from_secs(30)).saturating_add(Duration::from_secs(10))
}
