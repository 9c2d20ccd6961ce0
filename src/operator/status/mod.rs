//! `workload-operator status KIND NAME`: what keeps a custom resource from being ready.
//!
//! Guarantees
//! - The first line names the one cause that blocks, nearest to its origin: a pod's image before
//!   the rollout that waits for it.
//! - Nothing is changed, and nothing is needed that a viewer may not read: what may not be looked
//!   at is left out of the judgement.
//! - Exit codes: 0 ready; 1 not; 2 it could not be looked at, or is not there.

mod args;
mod facts;
mod cause;

pub use args::{KindName, StatusArgs};

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use super::check::one_line;
use super::error::Error;
use crate::client;
use crate::object::ObjectKey;
use cause::{Cause, Diagnosis, diagnose};
use facts::Facts;

/// Looks, prints, and says how the process is to end.
pub(super) async fn run(args: &StatusArgs) -> Result<ExitCode, Error> {
    let key = ObjectKey::new(args.namespace.as_str(), args.name.as_str());
    let facts = match look(args, &key).await {
        Ok(facts) => facts,
        Err(error) => {
            eprintln!("workload-operator: {} {key}: {error}", args.kind.kind().kind);
            return Ok(ExitCode::from(2));
        }
    };
    let diagnosis = diagnose(&facts);
    let text = text(args.kind, &key, &facts, &diagnosis);
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)?;
    Ok(ExitCode::from(u8::from(!diagnosis.cause.is_fine())))
}

async fn look(args: &StatusArgs, key: &ObjectKey) -> Result<Facts, client::Error> {
    facts::gather(&args.connection.client().await?, args.kind, key).await
}

fn text(kind: KindName, key: &ObjectKey, facts: &Facts, diagnosis: &Diagnosis) -> String {
    let Diagnosis { cause, detail } = diagnosis;
    let kind = kind.kind().kind;
    let mut text = format!("{kind} {key}: {}: {}\n", cause.word(), one_line(detail));
    if !cause.is_fine() {
        writeln!(text, "  next: {}", cause.next()).expect("a String takes all that is written");
    }
    for condition in cause::conditions(&facts.object) {
        let word = |field: &str| one_line(condition[field].as_str().unwrap_or_default());
        let line = format!(
            "  {:<12} {:<8} {:<18} {}",
            word("type"),
            word("status"),
            word("reason"),
            word("message")
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if !matches!(cause, Cause::Paused | Cause::Deleting) && facts.child.is_none() {
        text.push_str("  It has no children yet.\n");
    }
    for pod in &facts.pods {
        let name = one_line(pod["metadata"]["name"].as_str().unwrap_or_default());
        let node = one_line(pod["spec"]["nodeName"].as_str().unwrap_or("no node"));
        let line = format!("  pod {name}  {node}  {}\n", one_line(&cause::pod_state(pod)));
        text.push_str(&line);
    }
    text
}
