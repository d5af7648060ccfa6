//! Two hosts and a wire: network namespaces joined by a veth pair, whose receiving end collects datagrams for a moment and
//! merges those of one sender (GRO), as network cards do and the loopback does not.

use crate::process::Launch;
use crate::wait::PATIENCE;
use anyhow::{Context as _, ensure};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd as _;

/// Where the server is reached.
pub const SERVER: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));
const CLIENT: &str = "fd77::2/64";
/// The name of either end.
const END: &str = "wire";
/// For how long the server's end collects, in nanoseconds.
const COLLECTS: u32 = 50_000;

/// The wire. Both ends are gone when it is dropped and nobody is at them any more.
#[derive(Debug)]
pub struct Wire {
    server: File,
    clients: File,
}

/// Runs `body` at the clients' end.
///
/// Needs root. Without it the test is left out, loudly; in CI (`CI=true`) that is a failure.
///
/// # Errors
/// The wire can't be laid, there is no root in CI, or `body` failed.
pub fn test(body: impl AsyncFnOnce(&Wire) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if !crate::root::is_there("this test lays a wire between two network namespaces")? {
        return Ok(());
    }
    let wire = Wire { server: namespace()?, clients: namespace()? };
    // A new thread is in the namespace of the thread that made it: with this one, so is all of the runtime.
    setns(&wire.clients, CloneFlags::CLONE_NEWNET).context("going to the clients' end")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        wire.lay().await?;
        body(&wire).await
    })
}

fn namespace() -> anyhow::Result<File> {
    let new = || -> anyhow::Result<File> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        Ok(File::open("/proc/thread-self/ns/net")?)
    };
    std::thread::spawn(new).join().map_err(|_| anyhow::anyhow!("a thread panicked"))?.context("a network namespace")
}

fn path(namespace: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd())
}

async fn at(namespace: &File, line: &str) -> anyhow::Result<()> {
    let args = [&format!("--net={}", path(namespace)), "--", "/bin/sh", "-c", line];
    let output = Launch::new("nsenter").args(args).run(PATIENCE).await?;
    ensure!(output.status.success(), "{line}: {}", output.stderr);
    Ok(())
}

impl Wire {
    async fn lay(&self) -> anyhow::Result<()> {
        let add = format!("ip link add {END} type veth peer name {END} netns {}", path(&self.clients));
        at(&self.server, &add).await?;
        for (end, address) in [(&self.server, format!("{SERVER}/64")), (&self.clients, CLIENT.to_owned())] {
            let up = format!("ip addr add {address} dev {END} nodad && ip link set {END} up && ip link set lo up");
            at(end, &up).await?;
        }
        // What /sys shows is of the namespace that it was mounted in.
        let collects = format!("echo {COLLECTS} >/sys/class/net/{END}/gro_flush_timeout");
        let mounted = format!("unshare --mount sh -c 'mount -t sysfs sysfs /sys && {collects}'");
        at(&self.server, &format!("ethtool -K {END} gro on && {mounted}")).await
    }

    /// What a line of `sh` has to begin with to run at the server's end.
    #[must_use]
    pub fn at_the_server(&self) -> String {
        format!("nsenter --net={} --", path(&self.server))
    }

    /// From now on the server's end merges also what no socket there has asked to get merged (UDP_GRO).
    ///
    /// # Errors
    /// There is no such feature.
    pub async fn merges_for_everybody(&self) -> anyhow::Result<()> {
        at(&self.server, &format!("ethtool -K {END} rx-gro-list on")).await
    }
}
