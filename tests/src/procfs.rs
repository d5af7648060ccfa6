//! What /proc says about a process (proc(5)).

use anyhow::Context as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// The open descriptors of a process and what each refers to, as the kernel words it (`socket:[123]`).
///
/// # Errors
/// The process is gone, or another user's.
pub fn descriptors(pid: u32) -> anyhow::Result<BTreeMap<u32, String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).with_context(|| format!("descriptors of {pid}"))? {
        let entry = entry?;
        // A descriptor may be closed between the listing and the look at it.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let number = entry.file_name().to_string_lossy().parse().context("a descriptor is a number")?;
        found.insert(number, target.to_string_lossy().into_owned());
    }
    Ok(found)
}

/// The inodes of the sockets that a process holds.
///
/// # Errors
/// As [`descriptors`].
pub fn socket_inodes(pid: u32) -> anyhow::Result<BTreeSet<u64>> {
    let inode = |target: &String| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    Ok(descriptors(pid)?.values().filter_map(inode).collect())
}

/// The inodes of the UDP sockets that a process holds.
///
/// # Errors
/// As [`descriptors`].
pub fn udp_inodes(pid: u32) -> anyhow::Result<BTreeSet<u64>> {
    let mut all = BTreeSet::new();
    for table in ["udp", "udp6"] {
        let text =
            fs::read_to_string(format!("/proc/{pid}/net/{table}")).with_context(|| format!("{table} of {pid}"))?;
        // /proc/net/udp: the tenth column is the inode.
        all.extend(text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)?.parse::<u64>().ok()));
    }
    Ok(socket_inodes(pid)?.intersection(&all).copied().collect())
}

/// True if a UDP socket of our network namespace is bound to `port`.
///
/// # Errors
/// The kernel does not say.
pub fn udp_port_is_bound(port: u16) -> anyhow::Result<bool> {
    let wanted = format!(":{port:04X}");
    for table in ["udp", "udp6"] {
        let text = fs::read_to_string(format!("/proc/self/net/{table}")).with_context(|| format!("reading {table}"))?;
        // The second column is the local address.
        let mut addresses = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        if addresses.any(|address| address.ends_with(&wanted)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A field of /proc/PID/status, without its name and surrounding space.
///
/// # Errors
/// The process is gone, or the kernel has no such field.
pub fn status_field(pid: u32, name: &str) -> anyhow::Result<String> {
    field(PathBuf::from(format!("/proc/{pid}/status")), name)
}

fn field(path: PathBuf, name: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("{} has no {name}", path.display()))?.trim().to_owned())
}

/// Memory of a process that is in RAM, in KiB (VmRSS).
///
/// # Errors
/// As [`status_field`].
pub fn rss_kib(pid: u32) -> anyhow::Result<u64> {
    let value = status_field(pid, "VmRSS")?;
    value.split_whitespace().next().and_then(|number| number.parse().ok()).context("VmRSS is a number of kB")
}

/// How often the threads of a process have gone to sleep and been woken since they began.
///
/// # Errors
/// The process is gone.
pub fn wakeups(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("threads of {pid}"))? {
        let value = field(task?.path().join("status"), "voluntary_ctxt_switches")?;
        sum += value.parse::<u64>().context("a count")?;
    }
    Ok(sum)
}

/// Processor time that a process has used, in clock ticks (user and system; usually 100 a second).
///
/// # Errors
/// The process is gone.
pub fn cpu_ticks(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("stat of {pid}"))?;
    let after_name = text.rsplit_once(')').context("stat has a name")?.1;
    let ticks: Vec<u64> = after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    Ok(ticks.iter().sum())
}

/// True while a process of this number exists and is not a zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    status_field(pid, "State").is_ok_and(|state| !state.starts_with(['Z', 'X']))
}

/// Children, grandchildren and so on, as far as each one's parent is still there.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut parents = BTreeMap::<u32, Vec<u32>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(Ok(parent)) = status_field(child, "PPid").map(|text| text.parse()) else { continue };
        parents.entry(parent).or_default().push(child);
    }
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(next) = open.pop() {
        let children = parents.remove(&next).unwrap_or_default();
        found.extend(&children);
        open.extend(children);
    }
    found
}
