//! Credential plugins (`exec` in a kubeconfig): programs that print a token or a certificate.

use std::io::IsTerminal;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::Error;
use super::token::{ClientCertificate, bearer};

/// Longest wait of a call for a plugin. Shorter than any deadline of a call, so that the error names the plugin and
/// not the API server.
const WAIT: Duration = Duration::from_millis(1_500);
/// Duration after which a slow plugin is logged; doubled each time.
const SLOW: Duration = Duration::from_secs(3);
/// Limit of a plugin's output, in bytes: a token and a certificate chain.
const MAX_OUTPUT: u64 = 1 << 20;
/// Longest run of a plugin. A user may have to log in meanwhile.
const LIMIT: Duration = Duration::from_secs(300);
/// Pause after the first failed run, doubled after each further one.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Age below which a 401 does not replace a token, because an API server that has just started can refuse every token.
const YOUNG: Duration = Duration::from_secs(10);
/// Time before expiry at which the plugin runs again, but at most a quarter of the credential's lifetime. Until then,
/// the old credential is used.
const EARLY: Duration = Duration::from_secs(60);

/// A credential plugin and its last output. All clones share one state: one process runs for all clients and calls, in
/// a task that outlives the deadlines of calls.
#[derive(Clone)]
pub(super) struct Plugin(Arc<Shared>);

struct Shared {
    exec: ExecConfig,
    /// The program, for messages.
    name: String,
    state: watch::Sender<State>,
}

#[derive(Default)]
struct State {
    /// Start of the current run.
    running: Option<Instant>,
    last: Option<Credential>,
    /// True if the API server refused the last credential.
    refused: bool,
    /// Reason of the last failure.
    failure: Option<String>,
    failures: u32,
    /// End of the last run.
    ended: Option<Instant>,
}

/// A run of a plugin. If its task is dropped (for example, with its runtime), the next call starts another run.
struct Run {
    plugin: Plugin,
    ended: bool,
}

/// Credentials that a plugin printed.
#[derive(Clone)]
pub(super) struct Credential {
    /// Identifies the run.
    issued: Instant,
    pub(super) header: Option<HeaderValue>,
    pub(super) identity: Option<Arc<ClientCertificate>>,
    /// Renewal time and expiry time. `None` if unknown; then only a 401 shows the expiry.
    life: Option<(Instant, Instant)>,
}

/// client.authentication.k8s.io ExecCredential.
#[derive(Deserialize)]
struct Printed {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

// === impl Plugin ===

impl Plugin {
    /// Creates a plugin that has not run yet.
    ///
    /// # Errors
    /// [`Error::Config`] if the kubeconfig names no program.
    pub(super) fn new(exec: ExecConfig) -> Result<Plugin, Error> {
        let name = exec.command.clone().ok_or_else(|| {
            Error::Config("the kubeconfig names a credential plugin without a command".to_owned())
        })?;
        Ok(Plugin(Arc::new(Shared { exec, name, state: watch::Sender::default() })))
    }

    /// Returns the last credential; call [`Plugin::ready`] first.
    pub(super) fn last(&self) -> Option<Credential> {
        self.0.state.borrow().last.clone()
    }

    /// Waits a short time for a usable credential. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Credentials`] if the plugin failed or is too slow.
    pub(super) async fn ready(&self) -> Result<(), Error> {
        timeout(WAIT, self.answered()).await.unwrap_or_else(|_| {
            let since = self.0.state.borrow().running.map(|since| since.elapsed());
            let seconds = since.unwrap_or_default().as_secs();
            Err(Error::Credentials(format!(
                "the credential plugin {} has been running for {seconds} s and has not answered yet",
                self.0.name
            )))
        })
    }

    /// Like [`Plugin::ready`], but waits for as long as the plugin runs.
    ///
    /// # Errors
    /// [`Error::Credentials`] if the plugin failed.
    pub(super) async fn answered(&self) -> Result<(), Error> {
        self.begin();
        let mut state = self.0.state.subscribe();
        let answered = state.wait_for(|state| state.is_usable() || state.running.is_none()).await;
        let state = answered.expect("`self` holds the sender");
        if state.is_usable() {
            return Ok(());
        }
        let expired = || format!("the credential of the plugin {} has expired", self.0.name);
        Err(Error::Credentials(state.failure.clone().unwrap_or_else(expired)))
    }

    /// Records that the API server refused this credential (401).
    pub(super) fn refused(&self, credential: &Credential) {
        self.0.state.send_if_modified(|state| {
            let is_last = state.last.as_ref().is_some_and(|last| last.issued == credential.issued);
            state.refused |= is_last && credential.issued.elapsed() >= YOUNG;
            false
        });
    }

    /// Runs the plugin again before its credential expires, even without calls.
    fn renew_in_time(&self) {
        let Some((renewal, _)) = self.last().and_then(|last| last.life) else { return };
        let again = self.0.state.borrow().paused_until().map_or(renewal, |end| end.max(renewal));
        let shared = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep_until(again).await;
            if let Some(shared) = shared.upgrade() {
                Plugin(shared).begin();
            }
        });
    }

    /// Starts the plugin if it is due.
    fn begin(&self) {
        if !self.0.state.borrow().is_due() {
            return;
        }
        let begun = self.0.state.send_if_modified(|state| {
            let due = state.is_due();
            if due {
                state.running = Some(Instant::now());
            }
            due
        });
        if begun {
            tokio::spawn(Run { plugin: self.clone(), ended: false }.renew());
        }
    }

    /// Runs the program. Errors omit its output, which can contain a credential.
    async fn run(&self) -> Result<Credential, String> {
        let is_interactive = is_interactive(&self.0.exec)?;
        let mut child = command(&self.0.exec, is_interactive).spawn().map_err(|error| {
            let hint = self.0.exec.install_hint.as_deref().unwrap_or_default();
            format!("it cannot be started: {error}. {hint}").trim_end_matches([' ', '.']).to_owned()
        })?;
        let mut group = Group(child.id().filter(|_| !is_interactive));
        let mut printed = Vec::new();
        let stdout = child.stdout.take().ok_or("its output cannot be read")?;
        let read = stdout.take(MAX_OUTPUT + 1).read_to_end(&mut printed).await;
        if read.map_err(|error| error.to_string())? as u64 > MAX_OUTPUT {
            return Err(format!("it printed more than {MAX_OUTPUT} bytes"));
        }
        let status = child.wait().await.map_err(|error| error.to_string())?;
        group.0 = None;
        if !status.success() {
            return Err(status.to_string());
        }
        // Usually JSON; client-go accepts YAML, too, and some plugins print it.
        let printed: Printed = serde_saphyr::from_slice(&printed)
            .map_err(|_| "its output is not understood".to_owned())?;
        let status = printed.status.ok_or("its output has no status")?;
        credential(status, Timestamp::now())
    }
}

// === impl Run ===

impl Run {
    async fn renew(mut self) {
        let name = self.plugin.0.name.clone();
        let outcome = {
            let mut run = std::pin::pin!(timeout(LIMIT, self.plugin.run()));
            let mut pause = SLOW;
            loop {
                tokio::select! {
                    outcome = &mut run => break outcome,
                    () = sleep(pause) => pause *= 2,
                }
                tracing::warn!(
                    "The credential plugin {name} has not answered after {} s; calls wait for it, \
                     not for the API server",
                    (pause - SLOW).as_secs()
                );
            }
        };
        let outcome = outcome.unwrap_or_else(|_| Err(format!("not ended within {LIMIT:?}")));
        let outcome = outcome.map_err(|why| {
            let why = format!("the credential plugin {name} failed: {why}");
            tracing::warn!("No new credentials: {why}");
            why
        });
        self.ended = true;
        self.plugin.0.state.send_modify(|state| state.ended(outcome));
        self.plugin.renew_in_time();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.ended {
            let why = format!("the run of the credential plugin {} broke off", self.plugin.0.name);
            // The plugin did not fail, so the next run starts without a pause.
            self.plugin.0.state.send_modify(|state| {
                (state.running, state.failure) = (None, Some(why));
            });
        }
    }
}

/// The processes of a plugin's run. Dropping it kills them all: killing only the shell would leave its children
/// running.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let leader = self.0.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(leader) = leader {
            // Fails only if it has already ended.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Returns whether the plugin can use the terminal.
fn is_interactive(exec: &ExecConfig) -> Result<bool, String> {
    let terminal = std::io::stdin().is_terminal();
    match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => Ok(false),
        Some(ExecInteractiveMode::Always) if !terminal => {
            Err("it needs a terminal, and there is none".to_owned())
        }
        _ => Ok(terminal),
    }
}

/// Returns the command in a kubeconfig. A non-interactive one leads a process group.
fn command(exec: &ExecConfig, interactive: bool) -> Command {
    let mut spec = json!({"interactive": interactive});
    if exec.provide_cluster_info {
        spec["cluster"] = json!(exec.cluster);
    }
    let mut command = Command::new(exec.command.as_deref().unwrap_or_default());
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    let info = json!({"kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec});
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    for name in exec.drop_env.iter().flatten() {
        command.env_remove(name);
    }
    let stdin = if interactive { Stdio::inherit() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).kill_on_drop(true);
    if !interactive {
        command.process_group(0);
    }
    command
}

/// Returns the printed credential, or why it cannot be used.
fn credential(status: Status, now: Timestamp) -> Result<Credential, String> {
    let issued = Instant::now();
    let life = match &status.expiration_timestamp {
        None => None,
        Some(text) => {
            let expiry: Timestamp = text
                .parse()
                .map_err(|_| "it printed a malformed expirationTimestamp".to_owned())?;
            let left = Duration::try_from(expiry.duration_since(now)).unwrap_or_default();
            // A credential that has expired by the local clock is used until the API server refuses it: the clock can
            // be wrong.
            (!left.is_zero()).then(|| (issued + left - EARLY.min(left / 4), issued + left))
        }
    };
    let header = status.token.filter(|token| !token.is_empty());
    let header = header.map(|token| bearer(&token)).transpose()?;
    let identity = status.client_certificate_data.zip(status.client_key_data);
    let identity = identity.map(|(certificate, key)| {
        Arc::new(ClientCertificate { certificate: certificate.into_bytes(), key: key.into_bytes() })
    });
    if header.is_none() && identity.is_none() {
        return Err("it printed neither a token nor a certificate with its key".to_owned());
    }
    Ok(Credential { issued, header, identity, life })
}

// === impl State ===

impl State {
    /// Returns whether the last credential can be used.
    fn is_usable(&self) -> bool {
        let last = self.last.as_ref().filter(|_| !self.refused);
        last.is_some_and(|last| last.life.is_none_or(|(_, end)| Instant::now() < end))
    }

    /// Returns whether to start the plugin.
    fn is_due(&self) -> bool {
        let now = Instant::now();
        let life = self.last.as_ref().and_then(|last| last.life);
        let aged = life.is_some_and(|(renewal, _)| renewal <= now);
        let paused = self.paused_until().is_some_and(|end| now < end);
        self.running.is_none() && !paused && (aged || !self.is_usable())
    }

    /// Returns the end of the pause after a failure.
    fn paused_until(&self) -> Option<Instant> {
        let doubled = PAUSE.saturating_mul(1 << self.failures.checked_sub(1)?.min(16));
        self.ended.map(|ended| ended + doubled.min(MAX_PAUSE))
    }

    fn ended(&mut self, outcome: Result<Credential, String>) {
        self.running = None;
        self.ended = Some(Instant::now());
        match outcome {
            Ok(credential) => {
                self.last = Some(credential);
                (self.refused, self.failure, self.failures) = (false, None, 0);
            }
            Err(why) => {
                // The API server can have refused the last credential by mistake, for example while its webhook was
                // down. As in client-go, the credential is used until it expires or another 401 refuses it.
                self.refused = false;
                self.failure = Some(why);
                self.failures = self.failures.saturating_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
