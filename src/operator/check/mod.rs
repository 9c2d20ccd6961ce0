//! `workload-operator check`: whether a cluster and this binary suit each other.
//!
//! Guarantees
//! - Nothing is changed: it reads, asks what it may do, and dry-runs.
//! - Every check has an ID that stays, and one hint that says what to do. What the account may not
//!   look at is skipped, and says so; it never counts as fine.
//! - Exit codes: 0 nothing failed (warnings are no failures); 1 a check failed; 2 the API server
//!   could not be asked.
//!
//! Run as an administrator it sees all but the operator's own rights (R…); under the operator's
//! ServiceAccount it sees those.

mod args;
mod finding;
mod reach;
mod crds;
mod rights;
mod dry_run;
mod installed;
mod print;

pub use args::{CheckArgs, Output};

use std::process::ExitCode;

use super::error::Error;
use crate::client::Client;
use finding::{Finding, Outcome};
pub(super) use print::one_line;

/// The ClusterRole of artifacts/rbac/operator.yaml and the Role for the Lease, which a test
/// compares with it.
pub use rights::{LEASE_RIGHTS, RIGHTS, Right};

/// Checks, prints, and says how the process is to end.
pub(super) async fn run(args: &CheckArgs) -> Result<ExitCode, Error> {
    let (findings, code) = match args.connection.client().await {
        Ok(client) => all(&client, args).await,
        Err(error) => (vec![reach::unreachable(&error)], ExitCode::from(2)),
    };
    print::print(&findings, args.output).map_err(Error::Print)?;
    Ok(code)
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
    let failed = findings.iter().any(|finding| finding.outcome == Outcome::Fail);
    (findings, ExitCode::from(u8::from(failed)))
}
