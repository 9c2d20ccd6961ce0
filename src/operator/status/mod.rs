//! `workload-operator status KIND NAME`: what keeps a custom resource from being ready.
//!
//! Guarantees
//! - The first line names the one cause that blocks, as close to the origin as possible: a pod's
//!   image before the rollout that waits for it.
//! - Nothing is changed, and no rights beyond a viewer's are needed: what may not be read is left
//!   out of the diagnosis.
//! - Exit codes: 0 ready; 1 not ready; 2 it could not be read, or does not exist.

mod args;
mod facts;
mod cause;
mod print;

pub use args::{KindName, Output, StatusArgs};

use std::io::Write as _;
use std::process::ExitCode;

use super::error::Error;
use crate::client;
use crate::object::ObjectKey;
use crate::operator::check::one_line;
use cause::diagnose;
use facts::Facts;

/// Looks, prints, and returns the exit code.
pub(super) async fn run(args: &StatusArgs) -> Result<ExitCode, Error> {
    let key = ObjectKey::new(args.namespace.as_str(), args.name.as_str());
    let facts = match look(args, &key).await {
        Ok(facts) => facts,
        Err(error) => {
            let why = one_line(&error.to_string());
            eprintln!("workload-operator: {} {key}: {why}", args.kind.kind().kind);
            return Ok(ExitCode::from(2));
        }
    };
    let diagnosis = diagnose(&facts);
    let text = match args.output {
        Output::Text => print::as_text(args.kind, &key, &facts, &diagnosis),
        Output::Json => print::as_json(args.kind, &key, &facts, &diagnosis),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)?;
    Ok(ExitCode::from(u8::from(!diagnosis.is_fine)))
}

async fn look(args: &StatusArgs, key: &ObjectKey) -> Result<Facts, client::Error> {
    facts::gather(&args.connection.client().await?, args.kind, key).await
}
