//! A relay that holds much memory takes the kernel long to end.

use crate::told::kill;
use anyhow::{Context as _, ensure};
use tests::supervisor::Setup;
use tests::wait::PATIENCE;
use tests::{Replaceable, client};

/// The successor of a killed relay serves while the dead one's memory is still being given back: its clients don't wait for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_successor_of_a_heavy_relay_starts_before_its_memory_is_gone() -> anyhow::Result<()> {
    let setup = Setup::new("program")?.flags(["--probation", "0s", "--log-level", "debug"]);
    let program = Replaceable::new(setup.folder());
    program.plays("quic [::]:0 1\nname echo\nhello\nadopt\nweigh 512\nready\nhold")?;
    let exec = program.path().to_owned();
    let supervisor = setup.exec(exec).serve().await?;
    program.becomes_echo()?;
    kill(&supervisor, 1).await?;
    supervisor.wait_for("a successor", |status| status.state(2) == "active").await?;
    client::echo::Session::connect(supervisor.address().await?).await?.echo(b"here").await?;
    supervisor.process.wait_for_line("generation 1 is reaped", PATIENCE).await?;
    let lines = supervisor.process.lines();
    let line = |text: &str| lines.iter().position(|line| line.contains(text)).with_context(|| format!("no {text:?}"));
    let (ended, started) = (line("generation 1 was ended by signal 9")?, line("generation 2: process ")?);
    let reaped = line("generation 1 is reaped")?;
    ensure!(ended < started && started < reaped, "{}", supervisor.process.tail());
    Ok(())
}
