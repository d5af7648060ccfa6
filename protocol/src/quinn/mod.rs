//! QUIC endpoints (quinn) on adopted members.
//!
//! [`Endpoints`] makes them, [`Server`] is a whole supervised server for applications that need no more than accepted
//! connections.

mod crypto;
mod endpoint;
mod filter;
mod heir;
mod record;
mod server;
mod socket;
mod tally;

pub use endpoint::{Endpoints, MemberEndpoint};
pub use heir::Told;
pub use record::{MemberLedger, Recorded};
pub use server::{GRACE, Server, Session};
pub use socket::MemberCounters;
