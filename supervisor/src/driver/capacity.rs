//! How many descriptors the service manager keeps.

use super::capture::capture;
use super::reap::Reaper;
use crate::unit::Unit;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// It answers in milliseconds.
const LIMIT: Duration = Duration::from_secs(5);
const SYSTEMCTL: &str = "systemctl";

/// Asks systemd: before version 254 it does not say so by itself ($FDSTORE).
///
/// # Errors
/// Why it is not known, in one line.
pub(super) async fn ask(unit: &Unit, path: Option<OsString>, reaper: &Reaper) -> Result<usize, String> {
    let file = super::program::resolve(SYSTEMCTL.as_ref(), path.as_deref());
    let file = file.map_err(|_| "there is no systemctl".to_owned())?;
    let of_user = unit.of_user.then_some("--user");
    let args = [SYSTEMCTL, "show", "--property=FileDescriptorStoreMax", "--value"];
    let args = args.into_iter().chain(of_user).chain(["--", &unit.name]).map(OsString::from);
    let args: Vec<OsString> = args.collect();
    let output = capture(Path::new(&file), &args, None, LIMIT, reaper).await;
    let output = output.map_err(|error| format!("systemctl {error}"))?;
    output.trim().parse().map_err(|_| format!("systemctl says {:?}", output.trim()))
}
