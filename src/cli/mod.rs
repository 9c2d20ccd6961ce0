//! The command line: arguments, logs and servers of `run`, and the commands that only read.

pub(crate) mod args;
pub(crate) mod logs;
pub(crate) mod spans;
pub(crate) mod servers;
// The commands beside `run`.
pub mod check;
pub mod status;
pub(crate) mod manifests;
mod error;

pub use args::{BindAddress, Cli, Command, ConnectionArgs, ControllerName, LogFormat, RunArgs};
pub use error::Error;

use crate::identity::{Hints, Identity};
use crate::workload::MANAGER;

/// The operator, as the API server and people see it.
pub(crate) const IDENTITY: Identity = Identity::new(MANAGER, "workload-operator.example.com")
    .version(env!("CARGO_PKG_VERSION"))
    .hints(Hints {
        kinds: "apply artifacts/crds/",
        rights: "apply artifacts/rbac/",
        reviews: "apply artifacts/components/metrics-over-tls/",
    });
