//! Harness and clients for the tests and benches of the real binaries.
//!
//! A test starts real processes ([`Supervisor`], [`Relay`], [`Process`]), each on port 0 and in its own temporary
//! folder, drives them with the clients in [`client`], and waits for events with a deadline ([`wait`]): never a sleep
//! followed by an assertion. Everything ends when its handle is dropped.

pub mod client;
pub mod notify;
pub mod process;
pub mod procfs;
pub mod program;
pub mod relay;
pub mod replaceable;
pub mod report;
pub mod root;
pub mod scenario;
pub mod starved;
pub mod storm;
pub mod supervisor;
pub mod systemd;
pub mod tls;
pub mod wait;
pub mod wire;

pub use notify::NotifySocket;
pub use process::Process;
pub use relay::Relay;
pub use replaceable::Replaceable;
pub use supervisor::Supervisor;
