//! The only place where things are wired together: the command line, and what is connected to what.
//!
//! Guarantees
//! - Without a flag it finds its API server: a kubeconfig on a workstation, the ServiceAccount in
//!   a pod.
//! - Each kind waits only for its own informers: one that may not be listed, or whose CRD is
//!   missing, does not stop the others from working, and it recovers.
//! - Nothing is reconciled before the initial lists are known, and nothing is written while another
//!   process leads.
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
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use spans::Spans;

use crate::identity::{Hints, Identity};
use crate::reconcilers::MANAGER;

/// The operator, as the API server and people see it.
const IDENTITY: Identity = Identity::new(MANAGER, "workload-operator.example.com")
    .version(env!("CARGO_PKG_VERSION"))
    .hints(Hints {
        kinds: "apply artifacts/crds/",
        rights: "apply artifacts/rbac/",
        reviews: "apply artifacts/components/metrics-over-tls/",
    });

/// How long the process waits, at its end, for threads that something still blocks.
const LET_GO: Duration = Duration::from_secs(1);

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
        eprintln!("workload-operator: {}", check::one_line(&error.to_string()));
        ExitCode::FAILURE
    })
}

/// Answers a one-off question from a person: no log lines next to the answer.
fn asked(answer: impl Future<Output = Result<ExitCode, Error>>) -> Result<ExitCode, Error> {
    let runtime = Builder::new_current_thread().enable_all().build();
    to_its_end(runtime.map_err(Error::Runtime)?, answer)
}

fn start(args: RunArgs) -> Result<(), Error> {
    let mut runtime = Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        runtime
            .worker_threads(threads(std::thread::available_parallelism().map_or(1, usize::from)));
    }
    let runtime = runtime.enable_all().build().map_err(Error::Runtime)?;
    let spans = Spans::from_environment(runtime.handle());
    logs::init(&args.log_level, args.log_format, spans.layer()).map_err(Error::Logs)?;
    spans.tell();
    to_its_end(runtime, run::run(args, spans))
}

/// How many threads work with this many cores. On a single one, a reconcile that blocks it would stop
/// the renewals of the Lease and the answers to probes; more than four are idle: the API server is the
/// limit.
fn threads(cores: usize) -> usize {
    cores.clamp(2, 4)
}

/// Does all of `work`. A thread that it leaves blocked (by a name lookup, say) is left behind:
/// dropping a runtime would wait for it, however long that takes.
fn to_its_end<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(LET_GO);
    outcome
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn there_are_two_to_four_threads() {
        assert_eq!([1, 2, 3, 4, 64].map(threads), [2, 2, 3, 4, 4]);
    }

    #[test]
    fn a_thread_that_something_blocks_does_not_keep_the_process() {
        let (ended, end) = mpsc::channel();
        let (_blocked, forever) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
            let outcome = to_its_end(runtime, async {
                let (begun, begins) = tokio::sync::oneshot::channel();
                tokio::task::spawn_blocking(move || {
                    begun.send(()).unwrap();
                    forever.recv()
                });
                begins.await
            });
            ended.send(outcome).unwrap();
        });
        assert_eq!(end.recv_timeout(60 * LET_GO), Ok(Ok(())));
    }
}
