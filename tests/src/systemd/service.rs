//! The shipped unit with a program of the test's choice under it.

use super::sandbox::Sandbox;
use super::units::Units;
use crate::process::Output;
use crate::supervisor::{Status, status_where};
use crate::wait::{self, PATIENCE};
use crate::{procfs, program};
use anyhow::{Context as _, ensure};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

/// Where the shipped unit looks for the two programs and the relay's settings.
const SUPERVISOR: &str = "/usr/bin/moq-supervise";
const RELAY: &str = "/usr/bin/moq-relay";
const SETTINGS: &str = "/etc/moq-relay/relay.toml";

/// How many messages of a unit [`Service::journal`] reads at most.
const LINES: &str = "--lines=2000";

/// How to set up the service: as shipped, unless told otherwise.
#[derive(Debug)]
pub struct Setup<'a> {
    sandbox: &'a Sandbox,
    name: String,
    units: Vec<(String, String)>,
    flags: Vec<String>,
    lines: Vec<String>,
}

impl<'a> Setup<'a> {
    /// `moq-supervise.service`.
    ///
    /// # Errors
    /// It is not where it should be.
    pub fn shipped(sandbox: &'a Sandbox) -> anyhow::Result<Self> {
        Self::of(sandbox, Units::shipped("moq-supervise.service")?)
    }

    /// `moq-supervise.service` with this text.
    ///
    /// # Errors
    /// There is no supervisor to run.
    pub fn of(sandbox: &'a Sandbox, unit: Units) -> anyhow::Result<Self> {
        Self::named(sandbox, "moq-supervise.service").map(|setup| setup.file("moq-supervise.service", unit.text()))
    }

    /// A service of this name that consists of the files to come.
    ///
    /// # Errors
    /// There is no supervisor to run.
    pub fn named(sandbox: &'a Sandbox, name: &str) -> anyhow::Result<Self> {
        program::supervisor()?;
        Ok(Self { sandbox, name: name.to_owned(), units: Vec::new(), flags: Vec::new(), lines: Vec::new() })
    }

    /// Adds a unit file or a drop-in (`moq-relay.service.d/supervise.conf`).
    #[must_use]
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.units.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Adds flags of the supervisor to the shipped command line.
    #[must_use]
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
        self
    }

    /// Adds a line to the `[Service]` section, by a drop-in as an operator would.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Puts everything in place but the program under the supervisor.
    ///
    /// # Errors
    /// A file can't be written, or systemd does not take the units.
    pub async fn install(mut self) -> anyhow::Result<Service<'a>> {
        if !self.flags.is_empty() {
            let flags = self.flags.join(" ");
            self.lines.push(format!("ExecStart=\nExecStart={SUPERVISOR} --exec moq-relay {flags} -- {SETTINGS}"));
        }
        for (name, text) in &self.units {
            self.sandbox.write(&format!("/run/systemd/system/{name}"), text, 0o644)?;
        }
        if !self.lines.is_empty() {
            let text = format!("[Service]\n{}\n", self.lines.join("\n"));
            self.sandbox.write(&format!("/run/systemd/system/{}.d/zz-test.conf", self.name), &text, 0o644)?;
        }
        let service = Service { sandbox: self.sandbox, name: self.name };
        service.sandbox.write(SUPERVISOR, "", 0o755)?;
        service.sandbox.must(&["ln", "-sf", &service.sandbox.program("moq-supervise"), SUPERVISOR]).await?;
        service.sandbox.must(&["systemctl", "daemon-reload"]).await?;
        Ok(service)
    }

    /// [`Self::install`], and starts it with an echo server on `[::]:443`.
    ///
    /// # Errors
    /// As [`Self::install`], or the start fails.
    pub async fn start(self) -> anyhow::Result<Service<'a>> {
        let service = self.install().await?;
        service.becomes_echo()?;
        service.must("start").await?;
        Ok(service)
    }
}

/// The service, started or not.
#[derive(Debug)]
pub struct Service<'a> {
    /// The systemd that it is under.
    pub sandbox: &'a Sandbox,
    /// The name of its unit.
    pub name: String,
}

impl Service<'_> {
    /// The port of the echo server and of the relay.
    pub const PORT: u16 = 443;

    /// From now on the program is an echo server on `[::]:443`.
    ///
    /// # Errors
    /// There is none.
    pub fn becomes_echo(&self) -> anyhow::Result<()> {
        program::echo()?;
        self.becomes(&format!("exec {} '[::]:{}'", self.sandbox.program("examples/echo"), Self::PORT))
    }

    /// From now on the program is an echo server that starts only when [`Self::may_start`] was called.
    ///
    /// # Errors
    /// There is none.
    pub fn becomes_echo_later(&self) -> anyhow::Result<()> {
        let echo = self.sandbox.program("examples/echo");
        let wait = "until [ -e /usr/lib/moq-test/may-start ]; do sleep 0.02; done";
        self.becomes(&format!("{wait}\nexec {echo} '[::]:{}'", Self::PORT))
    }

    /// Lets a program start that waits for it.
    ///
    /// # Errors
    /// The sandbox is gone.
    pub fn may_start(&self) -> anyhow::Result<()> {
        self.sandbox.write("/usr/lib/moq-test/may-start", "", 0o644)
    }

    /// From now on the program is the real relay, open to all on `[::]:443`, with further lines in its settings.
    ///
    /// # Errors
    /// There is none.
    pub fn becomes_relay(&self, further: &str) -> anyhow::Result<()> {
        program::relay()?;
        let settings =
            "[listen]\nbind = \"[::]:443\"\n[listen.tls]\ngenerate = \"localhost\"\n[auth]\npublic = \"**\"\n";
        self.sandbox.write(SETTINGS, &format!("{settings}{further}"), 0o644)?;
        self.becomes(&format!("exec {} \"$@\"", self.sandbox.program("moq-relay")))
    }

    /// From now on the program is a child that plays `script`, a step a line.
    ///
    /// # Errors
    /// There is no fixture.
    pub fn plays(&self, script: &str) -> anyhow::Result<()> {
        program::fixture()?;
        let file = format!("/usr/lib/moq-test/script-{:016x}", rand::random::<u64>());
        self.sandbox.write(&file, script, 0o644)?;
        self.becomes(&format!("exec {} {file}", self.sandbox.program("fixture")))
    }

    /// From now on the program is this shell script.
    ///
    /// # Errors
    /// It can't be written.
    pub fn becomes(&self, script: &str) -> anyhow::Result<()> {
        self.sandbox.write(RELAY, &format!("#!/bin/sh\n{script}\n"), 0o755)
    }

    /// From now on the program is a file that can't be executed.
    ///
    /// # Errors
    /// It can't be written.
    pub fn is_no_program(&self) -> anyhow::Result<()> {
        self.sandbox.write(RELAY, "not a program\n", 0o755)
    }

    /// Puts another file of the supervisor's program in place: a copy, so a new version for all that it knows.
    ///
    /// # Errors
    /// There is no room.
    pub fn new_supervisor(&self) -> anyhow::Result<()> {
        self.sandbox.install("moq-supervise", SUPERVISOR)
    }

    /// `systemctl VERB UNIT`.
    ///
    /// # Errors
    /// It can't be run.
    pub async fn systemctl(&self, verb: &str) -> anyhow::Result<Output> {
        self.sandbox.run(&["systemctl", verb, &self.name]).await
    }

    /// [`Self::systemctl`] for one that must succeed.
    ///
    /// # Errors
    /// It failed.
    pub async fn must(&self, verb: &str) -> anyhow::Result<()> {
        self.sandbox.must(&["systemctl", verb, &self.name]).await.map(drop)
    }

    /// Sends a signal to the supervisor alone.
    ///
    /// # Errors
    /// There is none.
    pub async fn kill(&self, signal: &str) -> anyhow::Result<()> {
        let signal = format!("--signal={signal}");
        self.sandbox.must(&["systemctl", "kill", "--kill-whom=main", &signal, &self.name]).await.map(drop)
    }

    /// A property of the unit (`systemctl show`).
    ///
    /// # Errors
    /// systemd does not answer.
    pub async fn property(&self, name: &str) -> anyhow::Result<String> {
        let text = self.sandbox.must(&["systemctl", "show", "--value", "--property", name, &self.name]).await?;
        Ok(text.trim().to_owned())
    }

    /// Waits until a property has a value.
    ///
    /// # Errors
    /// It has not, within [`PATIENCE`].
    pub async fn wait_property(&self, name: &str, value: &str) -> anyhow::Result<()> {
        self.wait_properties(name, |found| found == value)
            .await
            .with_context(|| format!("awaiting {value:?}"))
            .map(drop)
    }

    /// Waits until a property is as it should be, and returns it.
    ///
    /// # Errors
    /// It is not, within [`PATIENCE`].
    pub async fn wait_properties(&self, name: &str, is: impl Fn(&str) -> bool) -> anyhow::Result<String> {
        let mut last = String::new();
        let found = wait::eventually(PATIENCE, name, async || {
            last = self.property(name).await?;
            Ok(is(&last).then(|| last.clone()))
        });
        let found = found.await;
        found.with_context(|| format!("{name} was {last:?}"))
    }

    /// What the supervisor says of itself.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn status(&self) -> anyhow::Result<Status> {
        let text = self.sandbox.must(&[SUPERVISOR, "status", "--json"]).await?;
        serde_json::from_str(&text).with_context(|| format!("status said {text}"))
    }

    /// Waits until `condition` holds of the status; a supervisor that does not answer yet is waited for as well.
    ///
    /// # Errors
    /// It does not hold within [`PATIENCE`].
    pub async fn wait_for(&self, what: &str, condition: impl Fn(&Status) -> bool) -> anyhow::Result<Status> {
        status_where(what, condition, async || self.status().await).await
    }

    /// The number of the active generation.
    ///
    /// # Errors
    /// There is none.
    pub async fn active(&self) -> anyhow::Result<u32> {
        let status = self.status().await?;
        status.active().map(|active| active.generation).with_context(|| format!("nobody is active in {status:?}"))
    }

    /// The SO_COOKIEs of all UDP sockets on [`Self::PORT`]: a socket keeps its number as long as it lives, and no
    /// other one gets it.
    ///
    /// # Errors
    /// `ss` (iproute2) does not say.
    pub async fn cookies(&self) -> anyhow::Result<BTreeSet<String>> {
        let filter = format!(":{}", Self::PORT);
        let text = self.sandbox.must(&["ss", "-H", "-u", "-a", "-n", "-e", "sport", "=", &filter]).await?;
        let cookie = |line: &str| line.split_whitespace().find_map(|word| word.strip_prefix("sk:").map(str::to_owned));
        let found: BTreeSet<String> = text.lines().filter_map(cookie).collect();
        ensure!(!found.is_empty(), "no socket on port {}: {text:?}", Self::PORT);
        Ok(found)
    }

    /// The messages in the journal under this unit, oldest first.
    ///
    /// # Errors
    /// journalctl fails.
    pub async fn journal(&self) -> anyhow::Result<Vec<String>> {
        let unit = format!("_SYSTEMD_UNIT={}", self.name);
        let text = self.sandbox.must(&["journalctl", "--no-pager", "--output=cat", LINES, &unit]).await?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Waits for a message in the journal under this unit, and returns the first.
    ///
    /// # Errors
    /// None comes within [`PATIENCE`].
    pub async fn wait_for_message(&self, part: &str) -> anyhow::Result<String> {
        wait::eventually(PATIENCE, &format!("{part:?} in the journal"), async || {
            Ok(self.journal().await?.into_iter().find(|line| line.contains(part)))
        })
        .await
    }

    /// Waits until the unit has been started anew `count` times by systemd itself.
    ///
    /// # Errors
    /// It has not, within `deadline`.
    pub async fn started_anew(&self, count: u32, deadline: Duration) -> anyhow::Result<()> {
        wait::eventually(deadline, &format!("start number {count} by systemd itself"), async || {
            let restarts: u32 = self.property("NRestarts").await?.parse().context("NRestarts is a number")?;
            Ok((restarts >= count).then_some(()))
        })
        .await
    }

    /// The processes of the service that run `program` (the file's name), by their numbers on this machine.
    ///
    /// # Errors
    /// The cgroup can't be read.
    pub fn processes(&self, program: &str) -> anyhow::Result<Vec<u32>> {
        let runs = |pid: &u32| {
            let target = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            // The kernel appends this to the name of a file that was replaced.
            target.to_string_lossy().trim_end_matches(" (deleted)").ends_with(&format!("/{program}"))
        };
        Ok(self.sandbox.processes(&self.name)?.into_iter().filter(runs).collect())
    }

    /// The supervisor, by its number on this machine.
    ///
    /// # Errors
    /// There is none.
    pub async fn supervisor(&self) -> anyhow::Result<u32> {
        let main = self.property("MainPID").await?;
        // proc_pid_status(5): the last number is the one in the innermost namespace.
        let inside = |pid: u32| Some(procfs::status_field(pid, "NSpid").ok()?.split_whitespace().last()?.to_owned());
        let all = self.sandbox.processes(&self.name)?;
        all.into_iter().find(|pid| inside(*pid).as_ref() == Some(&main)).context("there is no supervisor")
    }

    /// What systemd says of the unit, to go with an error.
    pub async fn describe(&self) -> String {
        let mut text = String::new();
        for name in ["ActiveState", "SubState", "Result", "MainPID", "NRestarts", "StatusText"] {
            let value = self.property(name).await.unwrap_or_default();
            let _always_fits = write!(text, "{name}={value} ");
        }
        text
    }
}
