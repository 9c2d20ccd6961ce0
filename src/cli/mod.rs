//! The command line: arguments, logs and servers of `run`, and the commands that only read.

pub(crate) mod args;
pub(crate) mod telemetry;
// The other commands, and the search for the installed operator.
pub(crate) mod installation;
pub mod check;
pub mod plan;
pub mod status;
pub(crate) mod manifests;

pub use args::{
    BindAddress, Cli, Command, ConnectionArgs, ControllerName, LogFormat, Output, RunArgs,
    WorkloadArgs,
};

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};
use serde_json::Value;

pub(crate) use crate::client::{is_control, one_line};
use crate::controller::ProgramError;
use crate::identity::{Hints, Identity};
use crate::leader_election::ConfigError;
use crate::workload::MANAGER;
use crate::{client, manager};

/// The operator's identity for the API server and users.
pub(crate) const IDENTITY: Identity = Identity::new(MANAGER, "workload-operator.example.com")
    .version(env!("CARGO_PKG_VERSION"))
    .with_hints(Hints {
        kinds: "update the installation (`workload-operator check` shows how)",
        permissions: "update the installation (`workload-operator check` names what is missing)",
        reviews: "grant its account to create tokenreviews and subjectaccessreviews, or set \
                  --metrics-secure=false",
    });

/// The operator's default namespace.
pub(crate) const NAMESPACE: &str = "workload-operator-system";

/// An error that prevents or ends the run of the operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid log level.
    #[error("{0}")]
    Logs(String),
    /// The runtime's threads could not be started.
    #[error("cannot start: {0}")]
    Runtime(#[source] std::io::Error),
    /// The signal handlers could not be installed.
    #[error("cannot listen to signals: {0}")]
    Signals(#[source] std::io::Error),
    /// The API server cannot be reached.
    #[error("{0}")]
    Client(#[from] client::Error),
    /// The durations of the leader election are inconsistent.
    #[error("the flags --leader-elect-… do not fit together: {0}")]
    LeaderElection(#[from] ConfigError),
    /// Cannot listen on an address.
    #[error(
        "cannot serve {what} on {address}: {source}; choose another --…-bind-address, or 0 for none"
    )]
    Listen {
        /// Metrics or health.
        what: &'static str,
        /// The address.
        address: std::net::SocketAddr,
        /// Cause.
        source: std::io::Error,
    },
    /// The flags of the metrics contradict each other.
    #[error("{0}")]
    Metrics(&'static str),
    /// The output could not be printed.
    #[error("cannot print: {0}")]
    Print(#[source] std::io::Error),
    /// The controllers could not be started.
    #[error(transparent)]
    Manager(manager::Error),
    /// An essential task died, or the program is assembled incorrectly.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl From<manager::Error> for Error {
    fn from(error: manager::Error) -> Error {
        match error {
            manager::Error::Listen { what, address, source } => {
                Error::Listen { what, address, source }
            }
            error => Error::Manager(error),
        }
    }
}

/// Parses the command line.
///
/// # Errors
/// The exit code, if the arguments are wrong or only request help.
pub fn parse() -> Result<Cli, ExitCode> {
    parse_from(std::env::args_os()).map_err(|error| {
        // The error is lost if stderr is closed.
        let _ = error.print();
        if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
    })
}

/// Prints the result of a command.
///
/// # Errors
/// If stdout is closed.
pub(crate) fn print(
    output: Option<Output>,
    json: &Value,
    text: impl FnOnce() -> String,
) -> Result<(), Error> {
    let text = match output {
        Some(Output::Json) => format!("{json:#}\n"),
        Some(Output::Yaml) => serde_yaml_ng::to_string(json).expect("JSON is YAML"),
        Some(Output::Wide) | None => text(),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)
}

/// Parses these arguments, the program's name first.
pub(crate) fn parse_from<T: Into<OsString> + Clone>(
    arguments: impl IntoIterator<Item = T>,
) -> Result<Cli, clap::Error> {
    let mut command = args::as_kubernetes_programs(Cli::command());
    let matches = command.try_get_matches_from_mut(arguments)?;
    if matches.subcommand_name().is_some() {
        let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let mut flags = command.get_arguments().filter(|flag| !flag.is_global_set());
        if let Some(flag) = flags.find(|flag| given(flag.get_id().as_str())) {
            let message = format!("'{flag}' must follow the command 'run', or another that has it");
            return Err(command.clone().error(ErrorKind::ArgumentConflict, message));
        }
    }
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}
