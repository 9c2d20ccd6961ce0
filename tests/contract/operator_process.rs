//! The shipped binary as a process.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use crate::world::MAX_WAIT;

/// Maximum time until it ends after SIGTERM. Its own limit is 25 s (`SHUTDOWN_GRACE`); after 40 s
/// the kubelet would kill it.
const GRACE: Duration = Duration::from_secs(30);

/// A running operator. Killed when dropped.
pub struct OperatorProcess {
    child: Child,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    grew: Notify,
}

impl OperatorProcess {
    /// Starts the operator with this kubeconfig, these additional arguments and this environment.
    pub fn start(kubeconfig: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        OperatorProcess::of(command(kubeconfig, arguments, environment))
    }

    /// Starts any program that logs to stderr.
    pub fn of(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program can be started");
        let log = Arc::new(Log::default());
        let stderr = child.stderr.take().expect("stderr was asked for");
        tokio::spawn(collect(stderr, log.clone()));
        OperatorProcess { child, log }
    }

    /// Waits for a log line that contains `text`, and returns it.
    pub async fn logged(&self, text: &str) -> String {
        let found = self.line(|line| line.contains(text));
        tokio::time::timeout(MAX_WAIT, found).await.unwrap_or_else(|_| {
            panic!("no line with {text:?} within {MAX_WAIT:?} in:\n{}", self.lines().join("\n"))
        })
    }

    /// Returns the first log line that satisfies `wanted`, without a time limit.
    pub async fn line(&self, wanted: impl Fn(&str) -> bool) -> String {
        loop {
            let grew = self.log.grew.notified();
            if let Some(line) = self.lines().into_iter().find(|line| wanted(line)) {
                return line;
            }
            grew.await;
        }
    }

    /// Everything logged so far.
    pub fn lines(&self) -> Vec<String> {
        self.log.lines.lock().clone()
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the operator is still running")
    }

    /// Asserts that the process is still the one that was started.
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
            panic!("the operator ended with {status}:\n{}", self.lines().join("\n"));
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("a signal");
    }

    /// Waits, without a time limit, until it terminates on its own. Returns its exit code.
    pub async fn ended(&mut self) -> Option<i32> {
        self.child.wait().await.expect("a child can be waited for").code()
    }

    /// Sends SIGKILL, so that it cannot clean up.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("the operator can be killed");
    }

    /// Sends SIGTERM and returns the exit code.
    pub async fn terminate(mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        let ended = tokio::time::timeout(GRACE, self.child.wait()).await;
        ended.expect("the operator ends on SIGTERM").expect("a child can be waited for").code()
    }
}

/// A command that starts the operator with this kubeconfig, these additional arguments and this
/// environment. `OPERATOR_BINARY=FILE` selects another build of it.
pub fn command(kubeconfig: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let built = || env!("CARGO_BIN_EXE_workload-operator").into();
    let program = std::env::var_os("OPERATOR_BINARY").unwrap_or_else(built);
    with_program(program.as_ref(), kubeconfig, arguments, environment)
}

/// The same with another build of the operator.
pub fn with_program(
    program: &Path,
    kubeconfig: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Command {
    let mut command = Command::new(program);
    command
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"])
        .args(["--log-format=text", "--log-level=info"])
        .args(arguments)
        .env("ALLOW_TEMPLATES", "true")
        .env_remove("MEMCACHED_IMAGE")
        .env_remove("MEMCACHED_EXPORTER_IMAGE")
        .env_remove("KUBECONFIG")
        .env_remove("RUST_LOG")
        .envs(environment.iter().copied());
    command
}

async fn collect(stderr: tokio::process::ChildStderr, log: Arc<Log>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        log.lines.lock().push(line);
        log.grew.notify_waiters();
    }
    log.grew.notify_waiters();
}
