//! Why the operator did not run, or stopped.

use crate::client;
use crate::controller::ProgramError;
use crate::leader_election::ConfigError;
use crate::manager;
use crate::metrics::TlsError;

/// Why the operator did not run, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log level is not understood.
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
        /// Why not.
        source: std::io::Error,
    },
    /// The flags of the metrics contradict each other.
    #[error("{0}")]
    Metrics(&'static str),
    /// The certificate for metrics cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The output could not be printed.
    #[error("cannot print: {0}")]
    Print(#[source] std::io::Error),
    /// The controllers could not be started.
    #[error(transparent)]
    Manager(#[from] manager::Error),
    /// A task that everything depends on died, or the program is wired wrongly.
    #[error(transparent)]
    Program(#[from] ProgramError),
}
