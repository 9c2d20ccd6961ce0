//! The only place where things are wired together: the command line, and what is connected to what.
//!
//! Guarantees
//! - Without a flag it finds its API server: a kubeconfig on a workstation, the ServiceAccount in
//!   a pod.
//! - Each kind waits only for its own informers: one that may not be listed, or whose CRD is
//!   missing, does not stop the others from working, and it recovers.
//! - Nothing is reconciled before the initial lists are known, or while another process leads.
//! - SIGTERM and SIGINT shut it down in order: no new pass begins, those under way finish (within a
//!   time limit), Events are sent, the lease is released, informers stop. A second signal ends it
//!   at once.
//! - If a task that everything depends on dies, the process exits: better restarted than deaf.
//!
//! Exit codes of `run`: 0 after an orderly shutdown; 1 could not start, or a task died (the last
//! line says what); 2 wrong arguments; 130 and 143 after a second SIGINT or SIGTERM.

mod error;
mod connection;
mod args;
mod logs;
mod spans;
mod crds;
mod run;
mod leading;
mod lease_events;
mod servers;
mod wiring;
// Other than running it.
pub mod check;
pub mod status;
mod manifests;
mod completions;

pub use args::{BindAddress, Cli, Command, ControllerName, LogFormat, RunArgs};
pub use connection::ConnectionArgs;
pub use error::Error;

use std::process::ExitCode;

use spans::Spans;

/// Runs the given command.
pub fn main(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Some(Command::Crds) => crds::print().map(|()| ExitCode::SUCCESS),
        Some(Command::Manifests { image }) => {
            manifests::print(image.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Completions { shell }) => {
            completions::print(shell).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Status(args)) => asked(status::run(&args)),
        Some(Command::Check(args)) => asked(check::run(*args)),
        Some(Command::Run(args)) => start(*args).map(|()| ExitCode::SUCCESS),
        None => start(cli.run).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("workload-operator: {error}");
        ExitCode::FAILURE
    })
}

/// Answers a one-off question from a person: no log lines next to the answer.
fn asked(answer: impl Future<Output = Result<ExitCode, Error>>) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Error::Runtime)?.block_on(answer)
}

fn start(args: RunArgs) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(Error::Runtime)?;
    let spans = Spans::from_environment(runtime.handle());
    logs::init(&args.log_level, args.log_format, spans.layer()).map_err(Error::Logs)?;
    spans.tell();
    runtime.block_on(run::run(args, spans))
}
