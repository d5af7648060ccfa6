//! Dealing the blows.

use super::clients::Book;
use super::plan::{Bad, Fault};
use crate::process::signal_process;
use crate::procfs;
use crate::supervisor::Status;
use crate::systemd::Service;
use crate::wait::{self, PATIENCE};
use anyhow::Context as _;
use nix::sys::signal::Signal;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long a relay that is going to die serves: less than the probation.
const MORTAL: u64 = 150;

/// Deals one after the other, without waiting for the end of any; at the end, all must have ended.
#[derive(Debug)]
pub(super) struct Blows<'a> {
    pub(super) service: &'a Service<'a>,
    pub(super) book: Book,
    /// Whoever chooses the relay's program for an upgrade, or relies on its being good.
    program: Mutex<()>,
}

impl<'a> Blows<'a> {
    pub(super) fn new(service: &'a Service<'a>, book: Book) -> Self {
        Self { service, book, program: Mutex::new(()) }
    }

    /// The program that every storm begins and ends with.
    pub(super) fn good_relay(&self) -> anyhow::Result<()> {
        self.service.becomes(&signed_echo(self.service, ""))
    }

    /// Deals this one, and returns when it is over.
    pub(super) async fn deal(&self, fault: Fault) -> anyhow::Result<()> {
        let name = format!("{fault:?}");
        let name = name.split(['(', ' ']).next().unwrap_or(&name).to_owned();
        self.book.note(|record| *record.faults.entry(name).or_default() += 1);
        match fault {
            Fault::Upgrade => self.upgrade().await,
            Fault::SelfUpgrade => self.self_upgrade().await,
            Fault::BadUpgrade(bad) => self.bad_upgrade(bad).await,
            // Whether there is anybody to take it is chance.
            Fault::UpgradeBySignal => self.service.kill("USR2").await.or(Ok(())),
            Fault::Certificates => self.service.kill("HUP").await.or(Ok(())),
            Fault::KillSupervisor => self.service.kill("KILL").await.or(Ok(())),
            // It fails when the new supervisor is killed in its start, or another job takes its place.
            Fault::Restart => self.service.systemctl("restart").await.map(drop),
            Fault::KillRelay(which) => self.kill_relay(which).await,
        }
    }

    /// It may fail: the supervisor is killed meanwhile, or too many are alive.
    async fn upgrade(&self) -> anyhow::Result<()> {
        let _program = self.program.lock().await;
        self.service.systemctl("reload").await.map(drop)
    }

    async fn self_upgrade(&self) -> anyhow::Result<()> {
        // Also against another one: two installations at once would take each other's unfinished file away.
        let _program = self.program.lock().await;
        self.service.new_supervisor()?;
        self.service.systemctl("reload").await.map(drop)
    }

    async fn bad_upgrade(&self, bad: Bad) -> anyhow::Result<()> {
        let _program = self.program.lock().await;
        let begun = self.book.now();
        match bad {
            Bad::Exits => self.service.becomes("exit 3")?,
            Bad::Crashes => self.service.becomes("kill -SEGV $$")?,
            Bad::IsNoProgram => self.service.is_no_program()?,
            Bad::Hangs => self.service.becomes("exec sleep 60")?,
            Bad::DiesInProbation => self.service.becomes(&signed_echo(self.service, &MORTAL.to_string()))?,
        }
        let reload = self.service.systemctl("reload").await;
        self.good_relay()?;
        if bad == Bad::DiesInProbation {
            // It may have been started in the last moment, by a supervisor that goes on with the upgrade of another.
            let ended = self.book.now() + 2 * Duration::from_millis(MORTAL) + START;
            self.book.note(|record| record.mortal.push((begun, ended)));
        }
        reload.map(drop)
    }

    async fn kill_relay(&self, which: usize) -> anyhow::Result<()> {
        // With a bad program in place a relay would have no successor: an outage of the storm's own making.
        let _program = self.program.lock().await;
        let mut relays = self.service.processes("signed_echo")?;
        relays.sort_unstable();
        let Some(pid) = relays.get(which.checked_rem(relays.len()).unwrap_or(0)).copied() else { return Ok(()) };
        // It may end by itself meanwhile.
        let Ok(inside) = procfs::status_field(pid, "NSpid") else { return Ok(()) };
        let inside: u32 = inside.split_whitespace().last().context("a number")?.parse()?;
        // Which handshakes it may cost depends on what it is doing, as far as anybody says.
        if let Ok(status) = self.service.status().await {
            self.book.look(&status);
        }
        if signal_process(pid, Signal::SIGKILL).is_ok() {
            let now = self.book.now();
            self.book.note(|record| record.killed.extend([(inside, now)]));
        }
        // So it goes until the successor has been started.
        let another = |status: &Status| status.active().is_some_and(|active| active.pid != Some(inside));
        wait::eventually(PATIENCE, "another active relay", async || {
            Ok(self.service.status().await.ok().filter(another).map(drop))
        })
        .await
    }
}

/// From exec to a relay's first word, at the most.
const START: Duration = Duration::from_secs(2);

fn signed_echo(service: &Service<'_>, lives: &str) -> String {
    format!("exec {} '[::]:{}' {lives}", service.sandbox.program("signed_echo"), Service::PORT)
}
