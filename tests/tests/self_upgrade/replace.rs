//! The supervisor's program is replaced on disk.

use crate::service::{Service, goes_on};
use anyhow::Context as _;
use nix::sys::signal::Signal;
use protocol::exit;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use tests::client::echo::Session;
use tests::process::signal_process;
use tests::procfs;

const FLAGS: [&str; 4] = ["--probation", "100ms", "--drain-timeout", "5m"];

/// The inode of the program that a process runs.
fn runs(pid: u32) -> anyhow::Result<u64> {
    Ok(fs::metadata(format!("/proc/{pid}/exe"))?.ino())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_replaced_by_rename_goes_on_in_place_and_then_upgrades_the_relay() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    service.serve().await?;
    let session = service.session().await?;
    let certificate = Session::connect(service.address().await?).await?.fingerprint();
    let (pid, sockets, first) = (service.pid()?, service.sockets()?, service.status().await?);
    service.replace_program()?;
    // The client that asked gets its answer from the new program.
    assert_eq!(service.upgrade().await?, 2);
    assert_eq!(service.pid()?, pid);
    assert_eq!(runs(pid)?, fs::metadata(service.program())?.ino());
    assert!(service.sockets()?.is_superset(&sockets));
    let status = service.status().await?;
    assert_eq!(status.generation(1).context("it drains")?.pid, first.generations[0].pid);
    assert_eq!(status.state(1), "draining");
    goes_on(&session).await?;
    assert_eq!(Session::connect(service.address().await?).await?.fingerprint(), certificate);
    assert_eq!(service.lines_with("going on with"), 1);

    // Again, by signal, and with a drain under way.
    service.replace_program()?;
    signal_process(pid, Signal::SIGUSR2)?;
    service.wait_for("generation 3", |status| status.active().is_some_and(|active| active.generation == 3)).await?;
    goes_on(&session).await?;
    assert_eq!(service.lines_with("going on with"), 2);

    // Without another program there is no replacement.
    assert_eq!(service.upgrade().await?, 4);
    assert_eq!(service.lines_with("going on with"), 2);
    session.stop().await?;

    // The children are still its own: their ends are noticed, and it ends with them.
    signal_process(pid, Signal::SIGTERM)?;
    assert_eq!(service.end().await?, Some(0), "{}", service.tail());
    assert_eq!(service.lines_with("unknown status"), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_turned_to_another_program_is_a_change_and_a_deleted_one_is_not() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    let versions = ["one", "two"].map(|name| service.folder().join(name));
    for version in &versions {
        fs::copy(service.program(), version)?;
    }
    let turn = |to: &std::path::Path| -> anyhow::Result<()> {
        let link = service.folder().join("link");
        symlink(to, &link)?;
        Ok(fs::rename(link, service.program())?)
    };
    turn(&versions[0])?;
    let program = service.program().to_owned();
    let folder = service.folder().to_owned();
    service.serve().await?;
    let session = service.session().await?;
    let pid = service.pid()?;
    let link = folder.join("link");
    symlink(&versions[1], &link)?;
    fs::rename(link, &program)?;
    assert_eq!(service.upgrade().await?, 2);
    assert_eq!(runs(pid)?, fs::metadata(&versions[1])?.ino());

    fs::remove_file(&program)?;
    assert_eq!(service.upgrade().await?, 3);
    assert_eq!(runs(pid)?, fs::metadata(&versions[1])?.ino());
    goes_on(&session).await
}

/// A bad program changes nothing: neither the supervisor nor the relay, and the operator hears why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_can_t_take_over_is_refused_with_its_reason() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    service.serve().await?;
    let session = service.session().await?;
    let (pid, program) = (service.pid()?, runs(service.pid()?)?);
    let cases = [
        ("#!/bin/sh\n", 0o644, "Permission denied"),
        ("not a program\n", 0o755, "Exec format error"),
        ("#!/bin/sh\nexit 0\n", 0o755, "is no moq-supervise"),
        ("#!/bin/sh\necho 'the state has no colour' >&2\nexit 3\n", 0o755, "the state has no colour"),
        ("#!/bin/sh\nkill -9 $$\n", 0o755, "signal 9"),
        ("#!/bin/sh\nsleep 100\n", 0o755, "did not end within 5 s"),
    ];
    for (text, mode, reason) in cases {
        let new = service.folder().join("new");
        fs::write(&new, text)?;
        fs::set_permissions(&new, Permissions::from_mode(mode))?;
        fs::rename(&new, service.program())?;
        let output = service.command(&["upgrade"]).await?;
        assert_eq!(output.status.code(), Some(i32::from(exit::DENIED)), "{text}: {output:?}");
        assert!(output.stderr.contains(reason), "{text}: {}", output.stderr);
        assert_eq!(runs(pid)?, program);
        let status = service.status().await?;
        assert_eq!(status.active().context("active")?.generation, 1);
        assert_eq!(status.generations.len(), 1);
    }
    goes_on(&session).await?;
    // A good one at last.
    service.replace_program()?;
    assert_eq!(service.upgrade().await?, 2);
    assert_ne!(runs(pid)?, program);
    goes_on(&session).await
}

/// Whoever ends while one program ends and the next begins is reaped, and missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_dies_around_the_exec_is_not_forgotten() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    service.serve().await?;
    for round in 0..6 {
        let before = service.wait_for("one active", |status| status.active().is_some()).await?;
        let active = before.active().context("active")?.clone();
        service.replace_program()?;
        signal_process(service.pid()?, Signal::SIGUSR2)?;
        tokio::time::sleep(std::time::Duration::from_millis(7 * round)).await;
        let victim = active.pid.context("it runs")?;
        signal_process(victim, Signal::SIGKILL)?;
        service
            .wait_for("another active one, and the dead one gone", |status| {
                status.active().is_some() && status.generation(active.generation).is_none()
            })
            .await?;
        assert!(!procfs::is_alive(victim));
    }
    Session::connect(service.address().await?).await?;
    Ok(())
}

/// Commands that come in the moment of the replacement wait for it, and are answered by the new program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_asks_meanwhile_is_without_an_answer() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    service.serve().await?;
    for _ in 0..3 {
        service.replace_program()?;
        let asked = async {
            let mut answers = Vec::new();
            for _ in 0..30 {
                answers.push(service.command(&["status", "--json"]).await?);
            }
            anyhow::Ok(answers)
        };
        let (one, other, answers) = tokio::join!(service.command(&["upgrade"]), service.command(&["upgrade"]), asked);
        for answer in answers?.into_iter().chain([one?, other?]) {
            assert!(answer.status.success(), "{answer:?}\n{}", service.tail());
        }
    }
    Ok(())
}
