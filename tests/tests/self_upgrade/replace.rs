//! The supervisor's program is replaced on disk.

use crate::service::{Service, goes_on};
use anyhow::Context as _;
use nix::sys::signal::Signal;
use protocol::exit;
use std::fs::{self, Permissions};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use supervisor::state::Slots;
use tests::client::echo::Session;
use tests::process::signal_process;
use tests::procfs;

const FLAGS: [&str; 4] = ["--probation", "100ms", "--drain-timeout", "5m"];

/// The inode of the program that a process runs.
fn runs(pid: u32) -> anyhow::Result<u64> {
    Ok(fs::metadata(format!("/proc/{pid}/exe"))?.ino())
}

/// Puts a program of this text in the supervisor's place.
fn put(service: &Service, text: &str) -> anyhow::Result<()> {
    let new = service.folder().join("new");
    fs::write(&new, text)?;
    fs::set_permissions(&new, Permissions::from_mode(0o755))?;
    Ok(fs::rename(&new, service.program())?)
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

/// Guards what comes after a good answer: a program that can't be executed all the same, and one that is another by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_changes_after_it_has_confirmed_is_not_executed_unasked() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    service.serve().await?;
    let session = service.session().await?;
    let (pid, program) = (service.pid()?, runs(service.pid()?)?);
    let confirms = "echo 'moq-supervise can take over'; exit 0";
    let cases = [
        // The same file for all that can be seen of it, so execve itself fails.
        (format!("#!/bin/sh\nchmod -x \"$0\"; {confirms}\n"), "can't be executed: Permission denied"),
        // Another one, which is asked in turn.
        (format!("#!/bin/sh\n{{ printf '#!/bin/sh\\nexit 7\\n' >\"$0\"; {confirms}; }}\n"), "ended with status 7"),
        (format!("#!/bin/sh\n{{ echo garbage >\"$0\"; {confirms}; }}\n"), "Exec format error"),
    ];
    for (text, reason) in cases {
        put(&service, &text)?;
        let output = service.command(&["upgrade"]).await?;
        assert_eq!(output.status.code(), Some(i32::from(exit::DENIED)), "{text}: {output:?}");
        assert!(output.stderr.contains(reason), "{text}: {}", output.stderr);
        assert_eq!(runs(pid)?, program);
        assert_eq!(service.status().await?.generations.len(), 1);
        goes_on(&session).await?;
    }
    // Nothing was given up for it: signals are handled, descriptors are not inherited, and a good one is executed.
    service.replace_program()?;
    signal_process(pid, Signal::SIGUSR2)?;
    service.wait_for("generation 2", |status| status.active().is_some_and(|active| active.generation == 2)).await?;
    assert_ne!(runs(pid)?, program);
    goes_on(&session).await
}

/// Guards operators who take a bad program back: there is nothing to be alarmed about any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_alarm_ends_when_the_program_that_runs_is_in_its_place_again() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, false)?;
    service.serve().await?;
    let kept = service.folder().join("kept");
    fs::hard_link(service.program(), &kept)?;
    put(&service, "not a program\n")?;
    assert_eq!(service.command(&["upgrade"]).await?.status.code(), Some(i32::from(exit::DENIED)));
    let alarmed = async || -> anyhow::Result<bool> {
        Ok(service.command(&["status", "--json"]).await?.stdout.contains("could not replace itself"))
    };
    assert!(alarmed().await?);
    fs::rename(&kept, service.program())?;
    let ended = async || Ok((!alarmed().await?).then_some(()));
    tests::wait::eventually(tests::wait::PATIENCE, "the end of the alarm", ended).await?;
    assert_eq!(service.upgrade().await?, 2);
    Ok(())
}

/// The real question, about the state of a running supervisor and about what is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_check_says_what_it_could_go_on_with() -> anyhow::Result<()> {
    let mut service = Service::new(&FLAGS, true)?;
    service.serve().await?;
    let (_, content) = Slots::open(service.manager.as_ref().context("a manager")?.kept("state")?)?;
    let state = |format: u32| -> anyhow::Result<Slots> {
        let mut slots = Slots::create()?;
        slots.write(format, &content.bytes)?;
        Ok(slots)
    };
    let torn = state(content.format)?;
    let file = fs::File::from(torn.as_fd().try_clone_to_owned()?);
    file.write_all_at(b"torn", 70)?;
    let cases: [(OwnedFd, i32, &str); 6] = [
        (state(content.format)?.as_fd().try_clone_to_owned()?, 0, "moq-supervise can take over\n"),
        (state(content.format + 1)?.as_fd().try_clone_to_owned()?, 0, "can take over, older generations will drain"),
        (file.into(), 1, "the first slot has a wrong checksum, the second is blank"),
        (Slots::create()?.as_fd().try_clone_to_owned()?, 1, "the first slot is blank, the second is blank"),
        (fs::File::open("/dev/null")?.into(), 1, "not a memfd of two slots"),
        (fs::File::open(service.program())?.into(), 1, "not a memfd of two slots"),
    ];
    for (input, status, words) in cases {
        let mut command = std::process::Command::new(service.program());
        command.args(["--upgrade-check", "--exec", "/bin/true"]).stdin(input);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(words), "{words:?} is not in {said:?}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    Ok(())
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
