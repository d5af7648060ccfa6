//! Under the manager of a user: the parent of the supervisor is neither PID 1 nor does it die when a shell does.

use anyhow::ensure;
use tests::process::Output;
use tests::systemd::{self, Clients, Sandbox, Service};
use tests::wait::{self, PATIENCE};

/// A manager of a user as a service of the system, as `user@.service` is one.
const MANAGER: &str = "[Service]\nType=notify\nExecStart=/lib/systemd/systemd --user\nDelegate=yes\nRuntimeDirectory=user\n\
                       Environment=XDG_RUNTIME_DIR=/run/user\nKillMode=mixed\nTimeoutStopSec=5\n";
/// The lines of the shipped unit that are not about privileges, which a user has none of.
const UNIT: &str = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=notify\nNotifyAccess=main\n\
                    ExecStart=/opt/moq/moq-supervise --control %t/control --probation 0s --drain-timeout 10m \
                    --exec /opt/moq/examples/echo -- [::]:443\n\
                    ExecReload=/opt/moq/moq-supervise upgrade --control %t/control\n\
                    ExecStopPost=-/opt/moq/moq-supervise sweep\n\
                    KillMode=process\nRestartKillSignal=SIGRTMIN+1\nFileDescriptorStoreMax=64\nRestart=always\n\
                    RestartSec=100ms\nWatchdogSec=10s\n";

async fn systemctl(sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<Output> {
    let command = ["env", "XDG_RUNTIME_DIR=/run/user", "systemctl", "--user"];
    sandbox.run(&[&command, args].concat()).await
}

async fn must(sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<String> {
    let output = systemctl(sandbox, args).await?;
    ensure!(output.status.success(), "{args:?}: {}", output.stderr);
    Ok(output.stdout.trim().to_owned())
}

async fn main_pid(sandbox: &Sandbox) -> anyhow::Result<String> {
    must(sandbox, &["show", "--value", "--property=MainPID", "relay.service"]).await
}

/// Guards against conclusions from the number of the parent process, and everything that needs the manager of the system.
#[test]
fn reload_restart_and_crash_under_the_manager_of_a_user_cost_nothing_under_load() -> anyhow::Result<()> {
    systemd::test(async |sandbox| {
        sandbox.write("/run/systemd/system/user-manager.service", MANAGER, 0o644)?;
        sandbox.write("/run/systemd/user/relay.service", UNIT, 0o644)?;
        sandbox.must(&["systemctl", "daemon-reload"]).await?;
        sandbox.must(&["systemctl", "start", "user-manager.service"]).await?;
        must(sandbox, &["start", "relay.service"]).await?;
        let clients = Clients::start(Service::PORT).await?;
        for blow in ["reload", "restart", "kill"] {
            let before = main_pid(sandbox).await?;
            match blow {
                "kill" => must(sandbox, &["kill", "--kill-whom=main", "--signal=KILL", "relay.service"]).await?,
                verb => must(sandbox, &[verb, "relay.service"]).await?,
            };
            wait::eventually(PATIENCE, &format!("an active service after {blow}"), async || {
                let active = systemctl(sandbox, &["is-active", "--quiet", "relay.service"]).await?.status.success();
                let replaced = main_pid(sandbox).await? != before;
                Ok((active && replaced == (blow != "reload")).then_some(()))
            })
            .await?;
            clients.go_on().await?;
        }
        clients.unharmed().await?;
        must(sandbox, &["stop", "relay.service"]).await?;
        let left = sandbox.run(&["pgrep", "--exact", "echo"]).await?;
        ensure!(!left.status.success(), "left behind: {}", left.stdout);
        Ok(())
    })
}
