//! What can't be started: flags, programs, ports and paths that another has, commands for nobody. One line and a
//! documented exit status each.

use anyhow::ensure;
use protocol::exit;
use std::path::Path;
use std::process::ExitStatus;
use tests::client::echo::Session;
use tests::process::Launch;
use tests::supervisor::Setup;
use tests::wait::PATIENCE;
use tests::{Replaceable, program};

/// How the line begins that says why a first generation failed.
const FIRST_FAILED: &str = "generation 1 failed before it was active: ";

/// Runs a program that should end by itself; it must say one line.
async fn one_line(program: &Path, args: &[&str]) -> anyhow::Result<(ExitStatus, String)> {
    let output = Launch::new(program).args(args).run(PATIENCE).await?;
    let said = output.stderr.trim().to_owned();
    ensure!(said.lines().count() == 1, "not one line: {said}");
    Ok((output.status, said))
}

/// What a program that can't be started is called depends on why.
#[tokio::test]
async fn a_program_that_can_not_be_started() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let program = Replaceable::new(folder.path());
    let path = program.path().to_string_lossy().into_owned();
    let control = folder.path().join("control.sock").to_string_lossy().into_owned();
    let args = ["--exec", &path, "--control", &control, "--log-level", "warn"];
    let supervisor = program::supervisor()?;

    let (status, line) = one_line(&supervisor, &args).await?;
    assert_eq!(status.code(), Some(i32::from(exit::NOT_FOUND)), "{line}");
    assert!(line.contains(&path), "{line}");

    program.contains("#!/bin/sh\n", 0o644)?;
    let (status, line) = one_line(&supervisor, &args).await?;
    assert_eq!(status.code(), Some(i32::from(exit::NOT_EXECUTABLE)), "{line}");
    assert!(line.contains(&path), "{line}");

    program.contains("neither a script nor a binary\n", 0o755)?;
    let (status, line) = one_line(&supervisor, &args).await?;
    assert_eq!(status.code(), Some(i32::from(exit::NOT_EXECUTABLE)), "{line}");
    assert!(line.contains(&path), "{line}");

    let args = ["--exec", "no-such-program", "--control", &control, "--log-level", "warn"];
    let (status, line) = one_line(&supervisor, &args).await?;
    assert_eq!(status.code(), Some(i32::from(exit::NOT_FOUND)), "{line}");
    assert!(line.contains("no-such-program"), "{line}");
    Ok(())
}

/// Flags of the supervisor.
#[tokio::test]
async fn flags_that_the_supervisor_does_not_take() -> anyhow::Result<()> {
    let cases: [(&[&str], &str); 8] = [
        (&["--exec", "true", "--probatoin", "2s"], "--probatoin"),
        (&["--exec", "true", "--probation", "soon"], "soon"),
        (&["--exec", "true", "--max-generations", "1"], "1"),
        (&["--exec", "true", "--max-generations", "17"], "17"),
        (&["--exec", "true", "--ready-timeout", "0s"], "0s"),
        (&["--exec", "true", "--secret-file", "/no/such/secret"], "/no/such/secret"),
        (&["--probation", "2s"], "--exec"),
        (&["upgarde"], "upgarde"),
    ];
    for (args, culprit) in cases {
        let (status, line) = one_line(&program::supervisor()?, args).await?;
        assert_eq!(status.code(), Some(i32::from(exit::USAGE)), "{args:?}: {line}");
        assert!(line.contains(culprit), "{args:?}: {line}");
    }
    Ok(())
}

/// Commands for a supervisor that is not there.
#[tokio::test]
async fn commands_without_a_supervisor() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let control = folder.path().join("control.sock").to_string_lossy().into_owned();
    for command in ["status", "upgrade"] {
        let (status, line) = one_line(&program::supervisor()?, &[command, "--control", &control]).await?;
        assert_eq!(status.code(), Some(i32::from(exit::UNREACHABLE)), "{line}");
        assert!(line.contains(&control) && line.contains("--control"), "{line}");
    }
    Ok(())
}

/// Two supervisors must not share a port: half of the clients would go astray.
#[tokio::test]
async fn a_second_supervisor_on_the_same_port_names_the_first() -> anyhow::Result<()> {
    let first = Setup::new(program::echo()?)?.child(["127.0.0.1:0"]).serve().await?;
    let address = first.address().await?;
    let mut second = Setup::new(program::echo()?)?.child([address.to_string()]).start()?;
    let line = second.process.wait_for_line(FIRST_FAILED, PATIENCE).await?;
    let status = second.process.wait(PATIENCE).await?;
    assert_eq!(status.code(), Some(i32::from(exit::IN_USE)), "{}", second.process.tail());
    let holder = first.process.pid().to_string();
    for part in [address.to_string().as_str(), &holder, "moq-supervise"] {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
    drop(Session::connect(address).await?);
    Ok(())
}

/// Nor the control path: `upgrade` would reach either of them.
#[tokio::test]
async fn a_second_supervisor_at_the_same_control_path_names_the_first() -> anyhow::Result<()> {
    let first = Setup::new(program::echo()?)?.child(["127.0.0.1:0"]).serve().await?;
    let control = first.control().to_string_lossy().into_owned();
    let args = ["--exec", "true", "--control", &control, "--log-level", "error"];
    let (status, line) = one_line(&program::supervisor()?, &args).await?;
    assert_eq!(status.code(), Some(i32::from(exit::IN_USE)), "{line}");
    assert!(line.contains(&control) && line.contains(&first.process.pid().to_string()), "{line}");
    assert_eq!(first.status().await?.state(1), "active");
    Ok(())
}
