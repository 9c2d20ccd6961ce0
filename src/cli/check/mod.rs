//! `workload-operator check`: checks whether the cluster is compatible with this binary.
//!
//! Guarantees
//! - It changes nothing: it reads, asks for its permissions, and makes dry runs.
//! - Every check has a stable ID and a hint. A check that the account cannot read is reported as skipped, and
//!   a request without a response as `unknown`. Neither counts as passed.
//! - Exit codes: 0 nothing failed (warnings are not failures); 1 a check failed or is unknown; 2 the API
//!   server could not be reached.
//! - With --wait, it repeats the checks until nothing fails or the time is over, and prints the last result.
//! - A hint never grants more than is installed. The way to update the manifests depends on how the operator
//!   was installed.
//!
//! With an administrator's account, the checks of permissions (R…) ask about the account of the installed operator. With
//! any other account, they ask about that account.

mod api_server;
mod permissions;
mod installation;

/// The permissions of the operator, those for its Lease and those for /metrics. A test compares them with the
/// ClusterRole and the Role in artifacts/rbac/operator.yaml, and those for /metrics with
/// artifacts/rbac/metrics.yaml.
pub use permissions::{
    CLUSTER_PERMISSIONS, LEASE_PERMISSIONS, METRICS_PERMISSIONS, PERMISSIONS, Permission,
};

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::args::{ConnectionArgs, Output, all_if_empty};
use super::installation::{Found, Installation, InstallationArgs, Setting};
use super::{Error, NAMESPACE, one_line};
use crate::client::Client;

/// The pause between two rounds of --wait.
const AGAIN: Duration = Duration::from_secs(1);

/// Checks, prints, and returns the exit code.
pub(crate) async fn run(mut args: CheckArgs) -> Result<ExitCode, Error> {
    all_if_empty(&mut args.namespaces);
    let args = &args;
    let asked = Instant::now();
    // All rounds share one client, so that a credential plugin runs once.
    let (mut told, mut client) = (String::new(), None);
    let (findings, code) = loop {
        let (findings, code) = once(args, &mut client).await;
        let failed: Vec<&str> = failed(&findings).map(|finding| finding.check.id).collect();
        let over = args.wait.is_none_or(|wait| asked.elapsed() >= wait);
        if failed.is_empty() || over {
            break (findings, code);
        }
        // Printed to stderr, and only after a change, because stdout is for the result.
        let waiting = failed.join(", ");
        if waiting != told {
            eprintln!("workload-operator: waiting for {waiting}");
            told = waiting;
        }
        sleep(AGAIN).await;
    };
    let is_wide = args.output == Some(Output::Wide);
    super::print(args.output, &as_json(&findings), || as_table(&findings, is_wide))?;
    Ok(code)
}

/// The checked installation: the flags, completed by the settings of the installed operator.
pub(super) struct Target<'a> {
    pub(super) client: &'a Client,
    pub(super) args: &'a CheckArgs,
    pub(super) found: Result<Found, crate::client::Error>,
    /// The namespaces in which the operator works; empty: all. `None`: its Deployment does not show them.
    pub(super) namespaces: Option<Vec<String>>,
}

impl Target<'_> {
    async fn of<'a>(client: &'a Client, args: &'a CheckArgs) -> Target<'a> {
        let found = args.installation.find(client).await;
        let watched = |found: &Found| found.one().map_or(Setting::Absent, Installation::watched);
        let namespaces = match found.as_ref().map(watched) {
            _ if !args.namespaces.is_empty() => Some(args.namespaces.clone()),
            Ok(Setting::Text(list)) => {
                let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
                Some(names.map(str::to_owned).collect())
            }
            Ok(Setting::Absent) => Some(Vec::new()),
            Ok(Setting::Elsewhere) | Err(_) => None,
        };
        Target { client, args, found, namespaces }
    }

    pub(super) fn installation(&self) -> Option<&Installation> {
        self.found.as_ref().ok().and_then(Found::one)
    }

    /// Namespace of the operator.
    pub(super) fn operator_namespace(&self) -> &str {
        let named = self.args.installation.operator_namespace.as_deref();
        self.installation().map(Installation::namespace).or(named).unwrap_or(NAMESPACE)
    }
}

async fn once(args: &CheckArgs, client: &mut Option<Client>) -> (Vec<Finding>, ExitCode) {
    let client = match client {
        Some(client) => &*client,
        None => match args.connection.client().await {
            Ok(made) => client.insert(made),
            Err(error) => return (vec![api_server::unreachable(&error)], ExitCode::from(2)),
        },
    };
    all(client, args).await
}

fn failed(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(|finding| matches!(finding.outcome, Outcome::Fail | Outcome::Unknown))
}

async fn all(client: &Client, args: &CheckArgs) -> (Vec<Finding>, ExitCode) {
    let version = match api_server::version(client).await {
        Ok(version) => version,
        Err(error) => return (vec![api_server::unreachable(&error)], ExitCode::from(2)),
    };
    let target = Target::of(client, args).await;
    let mut findings = api_server::version_findings(&version);
    findings.extend(api_server::crd_findings(client).await);
    findings.extend(permissions::findings(&target).await);
    findings.extend(api_server::dry_run_findings(&target).await);
    findings.extend(installation::operator_findings(&target).await);
    findings.extend(installation::policies(&target).await);
    let update = target.installation().map(Installation::update);
    for finding in &mut findings {
        let hint = finding.hint.replace(UPDATE, update.as_deref().unwrap_or(INSTALL));
        finding.hint = hint;
    }
    let code = ExitCode::from(u8::from(failed(&findings).next().is_some()));
    (findings, code)
}

/// Scope of the checks, and form of the output.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Which API server, as whom.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Namespaces that the operator watches. Defaults to those in its Deployment, else to all namespaces.
    #[arg(
        short = 'n',
        long = "watch-namespace",
        visible_alias = "namespace",
        env = "WATCH_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = super::args::namespace
    )]
    pub namespaces: Vec<String>,

    /// Where the operator is installed.
    #[command(flatten)]
    pub installation: InstallationArgs,

    /// Namespace of the operator's Lease. Defaults to the setting in its Deployment (for P002), else to the namespace
    /// of the operator.
    #[arg(long, env = "LEADER_ELECT_NAMESPACE", value_name = "NAME")]
    pub leader_elect_namespace: Option<String>,

    /// Repeat the checks until none fails, for at most this time, for example 2m after an installation.
    #[arg(long, value_name = "TIME", value_parser = super::args::duration)]
    pub wait: Option<Duration>,

    /// Output format. `wide` adds the consequence of each failure.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Ok,
    /// Works, but deserves attention.
    Warn,
    Fail,
    /// The API server did not respond.
    Unknown,
    /// Could not be checked; the detail gives the reason.
    Skip,
}

/// A check with its result.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) check: &'static Check,
    pub(super) outcome: Outcome,
    pub(super) detail: String,
    /// The remedy if it does not pass.
    pub(super) hint: String,
}

/// A check. The meaning of an ID never changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// The remedy if it does not pass. `UPDATE` in it stands for the way to update the manifests.
    pub(super) hint: &'static str,
    /// The consequence if nothing is done.
    pub(super) why: &'static str,
}

/// Placeholder in hints for the way to update the manifests, which depends on the installation method.
const UPDATE: &str = "UPDATE";
/// Its value if no operator is found.
const INSTALL: &str = "install the operator (docs/INSTALL.md)";

macro_rules! checks {
    ($($id:ident: $title:literal, $hint:literal, $why:literal;)*) => {
        $(pub(super) static $id: Check =
            Check { id: stringify!($id), title: $title, hint: $hint, why: $why };)*
        #[cfg(test)]
        static ALL: &[&Check] = &[$(&$id),*];
    };
}

checks! {
    K001: "API server reachable",
        "pass a kubeconfig (`--kubeconfig FILE`), and run `kubectl version`",
        "no other check can run";
    K002: "Kubernetes version supported (1.35 or newer, tested up to 1.37)",
        "upgrade the cluster",
        "validation and watches need features that older API servers lack";
    C001: "CRDs installed",
        "UPDATE; the CRDs alone: `workload-operator crds | kubectl apply --server-side -f -`",
        "the kind does not exist";
    C002: "CRDs match this version of the operator",
        "UPDATE; the CRDs alone: `workload-operator crds | kubectl apply --server-side -f -`",
        "new fields are dropped silently, and bounds are not enforced";
    R001: "account has every permission that it needs",
        "UPDATE; if you restricted the roles on purpose, grant the missing permissions in the listed namespaces only",
        "the operator cannot make some changes";
    R002: "account has no dangerous permissions beyond those that it needs",
        "remove the permission from the role that grants it, or the binding of that role",
        "an attacker who compromises the operator gains them";
    R003: "account can authorize scrapers of /metrics",
        "let the account create tokenreviews and subjectaccessreviews, or set `--metrics-secure=false`",
        "every scrape of /metrics fails with 503";
    D001: "a valid object of each kind is accepted",
        "look at the admission policies and webhooks that the message names",
        "objects of that kind cannot be created";
    D002: "an invalid object of each kind is refused",
        "apply the CRDs of this version, and look for admission policies that change objects",
        "invalid objects fail later instead of when they are applied";
    D003: "creating a GenericDaemon requires permission to create DaemonSets",
        "UPDATE; with Helm, set `genericDaemonPolicy.enabled`",
        "users who can create a GenericDaemon can run any image on the nodes";
    D004: "admission policies guard App, Memcached and the operator's ServiceAccount",
        "UPDATE; with Helm, set `appPolicy.enabled`, `memcachedPolicy.enabled` and `childrenPolicy.enabled`",
        "users who can edit these resources, or who compromise the operator, can use permissions that they were not granted";
    P001: "operator pods ready",
        "`kubectl describe pods -l app.kubernetes.io/name=workload-operator` in its namespace",
        "no object is reconciled";
    P002: "leader lease fresh",
        "look at the operator's log: either it cannot reach the API server, or no replica runs",
        "without a leader nothing is written";
    P004: "no other installation serves the same namespaces or shares the Lease",
        "let each serve other namespaces (`--watch-namespace`) with a Lease of its own (`--leader-elect-resource-name`), or remove one",
        "both write the same objects and undo each other's writes; of two that share a Lease, one does nothing";
}

impl Check {
    pub(super) fn ok(&'static self, detail: impl Into<String>) -> Finding {
        self.finding(Outcome::Ok, detail)
    }

    pub(super) fn warn(&'static self, detail: impl Into<String>) -> Finding {
        self.finding(Outcome::Warn, detail)
    }

    pub(super) fn fail(&'static self, detail: impl Into<String>) -> Finding {
        self.finding(Outcome::Fail, detail)
    }

    pub(super) fn skip(&'static self, detail: impl Into<String>) -> Finding {
        self.finding(Outcome::Skip, detail)
    }

    pub(super) fn unknown(&'static self, detail: impl Into<String>) -> Finding {
        self.finding(Outcome::Unknown, detail)
    }

    /// Returns the finding of a failed request: skipped if the account has no permission, otherwise unknown.
    pub(super) fn unasked(&'static self, error: &crate::client::Error) -> Finding {
        if error.is_forbidden() && !error.is_transient_refusal() {
            self.skip(format!("this account cannot read it: {error}"))
        } else {
            self.unknown(error.to_string())
        }
    }

    /// Returns a finding of this check.
    fn finding(&'static self, outcome: Outcome, detail: impl Into<String>) -> Finding {
        Finding { check: self, outcome, detail: detail.into(), hint: self.hint.to_owned() }
    }
}

impl Finding {
    /// Returns the finding with this remedy.
    pub(super) fn with_hint(self, hint: impl Into<String>) -> Finding {
        Finding { hint: hint.into(), ..self }
    }
}

fn as_table(findings: &[Finding], wide: bool) -> String {
    let width = findings.iter().map(|f| f.check.title.chars().count()).max().unwrap_or_default();
    let mut text = format!("{:<6} {:<width$}  {:<7}  DETAIL\n", "ID", "CHECK", "RESULT");
    for Finding { check, outcome, detail, hint } in findings {
        let detail = one_line(detail);
        let line =
            format!("{:<6} {:<width$}  {:<7}  {detail}", check.id, check.title, word(*outcome));
        text.push_str(line.trim_end());
        text.push('\n');
        let wrong = matches!(outcome, Outcome::Warn | Outcome::Fail | Outcome::Unknown);
        if wrong {
            text.push_str(&format!("         fix: {}\n", one_line(hint)));
        }
        if wide {
            text.push_str(&format!("         why: otherwise {}\n", check.why));
        }
    }
    let [ok, warn, fail, unknown, skip] = counts(findings);
    let summary = format!("{ok} ok  {warn} warn  {fail} fail  {unknown} unknown  {skip} skipped");
    text.push_str(&format!("       {summary}\n"));
    text
}

fn as_json(findings: &[Finding]) -> Value {
    let checks: Vec<_> = findings
        .iter()
        .map(|Finding { check, outcome, detail, hint }| {
            json!({"id": check.id, "check": check.title, "result": outcome, "detail": detail,
                "hint": hint, "why": check.why})
        })
        .collect();
    let [ok, warn, fail, unknown, skip] = counts(findings);
    let summary = json!({"ok": ok, "warn": warn, "fail": fail, "unknown": unknown, "skip": skip});
    json!({"checks": checks, "summary": summary})
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Warn => "warn",
        Outcome::Fail => "FAIL",
        Outcome::Unknown => "unknown",
        Outcome::Skip => "skip",
    }
}

fn counts(findings: &[Finding]) -> [usize; 5] {
    [Outcome::Ok, Outcome::Warn, Outcome::Fail, Outcome::Unknown, Outcome::Skip]
        .map(|outcome| findings.iter().filter(|finding| finding.outcome == outcome).count())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use clap::Parser as _;
    use http::{Request, Response};

    use super::*;
    use crate::client::Options;

    /// `UPDATE_ARTIFACTS=1` writes the file instead.
    #[test]
    fn the_documentation_has_a_row_for_each_check() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CHECKS.md");
        let mut text = String::from(
            "# What `workload-operator check` checks\n\n\
             The command changes nothing. Its exit code is 0 if no check failed, 1 if a check failed or a request got no response,\n\
             and 2 if the API server was unreachable. A check for which the account lacks a permission is skipped. With an\n\
             administrator's account, the checks of permissions (R…) ask about the account of the installed operator. With any\n\
             other account, they ask about that account.\n\n\
             `--wait 2m` repeats the checks until none fails, for at most that time. `-o wide` adds the consequence of each failure.\n\
             `-o json` and `-o yaml` are for programs. \"Update the installation\" means the Helm release, the OLM bundle or your manifests:\n\
             the hint names the one by which the operator was installed.\n\n\
             | ID | check | if it fails | fix |\n|---|---|---|---|\n",
        );
        for Check { id, title, hint, why } in ALL {
            let hint = hint.replace(UPDATE, "update the installation").replace('|', "\\|");
            text.push_str(&format!(
                "| <a id=\"{}\"></a>{id} | {title} | {why} | {hint} |\n",
                id.to_lowercase()
            ));
        }
        let dangerous: Vec<String> =
            permissions::dangerous().iter().map(|one| format!("`{one}`")).collect();
        text.push_str(&format!(
            "\nDangerous permissions (R002), in the whole cluster and in the namespaces that the operator serves: {}; \
             and, of an operator that serves named namespaces, a permission to write Deployments, DaemonSets or \
             Services in the whole cluster.\n",
            dangerous.join(", ")
        ));
        if std::env::var_os("UPDATE_ARTIFACTS").is_some() {
            std::fs::write(file, &text).unwrap();
        }
        let there = std::fs::read_to_string(file).unwrap_or_default();
        assert!(there == text, "docs/CHECKS.md is out of date: run hack/update-codegen.sh");
    }

    #[test]
    fn every_check_has_a_unique_id_a_hint_and_a_reason() {
        let ids: std::collections::BTreeSet<_> = ALL.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for check in ALL {
            assert!(!check.hint.is_empty() && !check.why.is_empty(), "{}", check.id);
        }
    }

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: CheckArgs,
    }

    /// An API server that reports its version, allows everything if it `reviews`, and fails all other
    /// requests.
    fn broken(reviews: bool) -> Client {
        let service = tower::service_fn(move |request: Request<Bytes>| {
            let (code, body) = match request.uri().path() {
                "/version" => (200, json!({"gitVersion": "v1.36.3"})),
                path if reviews && path.ends_with("/selfsubjectaccessreviews") => {
                    (201, json!({"status": {"allowed": true}}))
                }
                _ => (500, json!({"kind": "Status", "code": 500, "message": "etcd is gone"})),
            };
            let response = Response::builder().status(code).body(body.to_string());
            std::future::ready(Ok::<_, Infallible>(response.expect("a response")))
        });
        Client::from_service(service, Options::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_response_is_unknown_and_never_ok() {
        for reviews in [false, true] {
            let args = Command::parse_from(["check"]).args;
            let (findings, code) = all(&broken(reviews), &args).await;
            assert_eq!(code, ExitCode::from(1));
            let is_answered = |id: &str| id.starts_with('K') || reviews && id.starts_with('R');
            for check in ALL.iter().filter(|check| !is_answered(check.id)) {
                let finding = findings.iter().find(|finding| finding.check == *check);
                let finding = finding.unwrap_or_else(|| panic!("{} is missing", check.id));
                assert_eq!(finding.outcome, Outcome::Unknown, "{finding:?}");
            }
        }
    }

    #[test]
    fn a_failed_check_has_a_hint_and_no_text_breaks_the_table() {
        let findings = [K001.ok("v1"), C002.warn("two\nlines\u{1b}[2J")];
        let text = as_table(&findings, false);
        assert_eq!(text.matches("fix:").count(), 1);
        assert!(text.contains("two lines [2J"), "{text}");
        assert!(text.ends_with("1 ok  1 warn  0 fail  0 unknown  0 skipped\n"), "{text}");
    }
}
