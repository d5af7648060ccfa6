//! Exit statuses of `moq-supervise`, as stable as the wire format.
//!
//! Besides these: when the first generation ends before any was active, the supervisor ends with that generation's own
//! status (128 + n after signal n).

/// An orderly stop, or the active relay ended with 0 unasked.
pub const OK: u8 = 0;
/// An error of the supervisor that no other status names.
pub const FAILURE: u8 = 1;
/// A bad flag, environment variable or combination of them.
pub const USAGE: u8 = 2;
/// `upgrade`, `rollback` or another request was refused: nothing was changed.
pub const DENIED: u8 = 3;
/// `upgrade`: the new generation failed before it was ready; the old one serves on.
pub const UPGRADE_FAILED: u8 = 4;
/// `upgrade`: the new generation was rolled back in its probation; the old one serves on.
pub const ROLLED_BACK: u8 = 5;
/// A control command found no supervisor at the control path, or lost it before the answer.
pub const UNREACHABLE: u8 = 6;
/// An address, lock or control path is held by another process.
pub const IN_USE: u8 = 7;
/// The first generation did not become ready: it hung, spoke no common protocol version, or asked for what can't be had.
pub const NOT_READY: u8 = 8;
/// The program can't be executed: it exists but is not executable, or has a bad format (as shells say it).
pub const NOT_EXECUTABLE: u8 = 126;
/// The program was not found (as shells say it).
pub const NOT_FOUND: u8 = 127;
