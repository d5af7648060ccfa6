//! Which core a worker runs on.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The cores that this process may run on (sched_getaffinity(2)); empty when the kernel does not say.
pub(super) fn cores() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return Vec::new() };
    (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false)).collect()
}

/// Pins the calling thread to a core. A relay that may not (a seccomp filter without `@resources`, a changed cpuset)
/// serves all the same, on whichever core the kernel picks.
pub(super) fn pin(core: usize) {
    let mut set = CpuSet::new();
    if let Err(error) = set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)) {
        tracing::warn!(core, %error, "failed to pin a worker to its core: it runs unpinned");
    }
}

#[cfg(test)]
mod tests {
    use super::{cores, pin};
    use nix::sched::sched_getaffinity;
    use nix::unistd::Pid;

    /// In a container with a cpuset, core 0 may not be ours.
    #[test]
    fn a_thread_is_pinned_to_one_of_the_allowed_cores() {
        let allowed = cores();
        let core = *allowed.last().expect("at least the one we run on");
        std::thread::spawn(move || {
            pin(core);
            let now = sched_getaffinity(Pid::from_raw(0)).expect("readable");
            assert!(allowed.iter().all(|&other| now.is_set(other).unwrap_or(false) == (other == core)));
        })
        .join()
        .expect("no panic");
    }

    /// A core that does not exist is a warning, not the end of the worker.
    #[test]
    fn failing_to_pin_does_no_harm() {
        std::thread::spawn(|| pin(1_023)).join().expect("no panic");
        std::thread::spawn(|| pin(usize::MAX)).join().expect("no panic");
    }
}
