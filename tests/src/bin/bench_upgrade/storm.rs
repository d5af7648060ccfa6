//! Three live generations whose clients change their UDP port before each echo.

use anyhow::ensure;
use std::time::Duration;
use tests::client::echo::{Habit, Session, Steady};
use tests::program;
use tests::report::{Report, count};
use tests::supervisor::Setup;
use tests::wait;

/// Sessions of each generation.
const SESSIONS: usize = 8;
/// What a million packets may take at most, on a machine that is busy with something else.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs it until `packets` have been counted at the clients.
pub(crate) async fn measure(packets: u64, report: &mut Report) -> anyhow::Result<()> {
    let flags = ["--probation", "0s", "--drain-timeout", "1h"];
    let supervisor = Setup::new(program::echo()?)?.flags(flags).child(["[::]:0"]).serve().await?;
    let server = supervisor.address().await?;
    let mut sessions = Vec::new();
    for generation in 1..=3 {
        for _ in 0..SESSIONS {
            sessions.push(Session::connect(server).await?);
        }
        if generation < 3 {
            supervisor.upgrade().await?;
        }
    }
    let habit = Habit { pause: Duration::ZERO, size: 20_000, rebind: true };
    let sessions: Vec<_> = sessions.into_iter().map(|session| Steady::start(session, habit)).collect();
    wait::until(LIMIT, "the packets of clients that move", || {
        let reports = sessions.iter().map(Steady::report);
        let failed = reports.clone().filter(|report| report.failure.is_some()).count();
        ensure!(failed < sessions.len(), "every session has failed");
        Ok(reports.map(|report| report.datagrams).sum::<u64>() >= packets)
    })
    .await?;
    let reports: Vec<_> = sessions.iter().map(Steady::report).collect();
    let lost = reports.iter().filter(|report| report.failure.is_some()).count();
    let status = supervisor.status().await?;
    report.note("packets of clients that move", count(reports.iter().map(|one| one.datagrams).sum()), "");
    report.note("moves of their UDP ports", count(reports.iter().map(|one| one.rebinds).sum()), "");
    report.bound("sessions lost", count(lost as u64), "", 0.0);
    let foreign = status.generations.iter().map(|generation| generation.foreign).sum();
    report.bound("foreign packets", count(foreign), "", 0.0);
    Ok(())
}
