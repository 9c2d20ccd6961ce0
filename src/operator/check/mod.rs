//! `workload-operator check`: whether the cluster is compatible with this binary.
//!
//! Guarantees
//! - Nothing is changed: it reads, asks what it may do, and does dry runs.
//! - Every check has a stable ID and a hint that says what to do. What the account may not read is
//!   skipped, and reported as such; it never counts as passed.
//! - Exit codes: 0 nothing failed (warnings are not failures); 1 a check failed; 2 the API server
//!   could not be asked.
//! - With --wait it asks again until nothing fails or the time is up, and prints the last answer.
//!
//! Run as an administrator it sees everything but the operator's own rights (R…); under the
//! operator's ServiceAccount it sees those.

mod args;
mod finding;
mod reach;
mod crds;
mod rights;
mod dry_run;
mod installed;
mod metrics;
mod daemons;
mod print;

pub use args::{CheckArgs, Output};

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::args::all_if_empty;
use super::error::Error;
use crate::client::Client;
use finding::{Finding, Outcome};
pub(super) use print::one_line;

/// The rights of the operator and those for its Lease. A test compares them with the ClusterRole
/// and the Role in artifacts/rbac/operator.yaml.
pub use rights::{CLUSTER_RIGHTS, LEASE_RIGHTS, RIGHTS, Right};

/// The pause between two rounds of --wait.
const AGAIN: Duration = Duration::from_secs(1);

/// Checks, prints, and returns the exit code.
pub(super) async fn run(mut args: CheckArgs) -> Result<ExitCode, Error> {
    all_if_empty(&mut args.namespaces);
    let args = &args;
    let asked = Instant::now();
    let mut told = String::new();
    let (findings, code) = loop {
        let (findings, code) = once(args).await;
        let failed: Vec<&str> = failed(&findings).map(|finding| finding.check.id).collect();
        let over = args.wait.is_none_or(|wait| asked.elapsed() >= wait);
        if failed.is_empty() || over {
            break (findings, code);
        }
        // On stderr, and only if it has changed: stdout is for the answer.
        let waiting = failed.join(", ");
        if waiting != told {
            eprintln!("workload-operator: waiting for {waiting}");
            told = waiting;
        }
        sleep(AGAIN).await;
    };
    print::print(&findings, args.output).map_err(Error::Print)?;
    Ok(code)
}

async fn once(args: &CheckArgs) -> (Vec<Finding>, ExitCode) {
    match args.connection.client().await {
        Ok(client) => all(&client, args).await,
        Err(error) => (vec![reach::unreachable(&error)], ExitCode::from(2)),
    }
}

fn failed(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(|finding| finding.outcome == Outcome::Fail)
}

async fn all(client: &Client, args: &CheckArgs) -> (Vec<Finding>, ExitCode) {
    let version = match reach::version(client).await {
        Ok(version) => version,
        Err(error) => return (vec![reach::unreachable(&error)], ExitCode::from(2)),
    };
    let mut findings = reach::findings(&version);
    findings.extend(crds::findings(client).await);
    findings.extend(rights::findings(client, args).await);
    findings.extend(dry_run::findings(client, args).await);
    findings.extend(installed::findings(client, &args.operator_namespace).await);
    findings.push(metrics::finding(client, &args.operator_namespace).await);
    findings.extend(daemons::findings(client, args).await);
    let code = ExitCode::from(u8::from(failed(&findings).next().is_some()));
    (findings, code)
}
