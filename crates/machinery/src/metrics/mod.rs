//! Metrics for Prometheus, and health checks for the kubelet and users.
//!
//! Guarantees
//! - Names, labels and meanings are those of client-go and controller-runtime, so their dashboards work (`workqueue_*`,
//!   `controller_runtime_*`, `rest_client_*`, `leader_election_*`). The metrics `reflector_*`, which client-go defines
//!   but never sets, are included. All other names begin with the program's name
//!   ([`Identity::metrics_prefix`](crate::identity::Identity::metrics_prefix)).
//! - The format is Prometheus text 0.0.4, which every scraper reads.
//! - No label contains an object name or a namespace. The number of series does not depend on the number of objects,
//!   and a scrape does not reveal which objects exist in the cluster.
//! - The modules count where something happens. Current values, such as queue lengths, are read at the scrape.
//! - The server accepts GET and HEAD only, reads no body, and limits headers, connections and their lifetime. A scrape
//!   that hangs delays no other.
//! - Optionally, metrics are served only over TLS 1.3, with certificates that can be renewed while in use, and only to
//!   users whom the API server authorizes (`DelegatedAuthorizer`). Tokens are not stored.
//! - [`HealthChecks`] report the problem of each failed check, and the time since it fails.

mod collectors;
mod registry;
mod checks;
#[cfg(feature = "metrics")]
mod review;
#[cfg(feature = "metrics")]
mod tls;
#[cfg(feature = "metrics")]
mod server;

pub use checks::{HealthChecks, Report};
/// The library for your own metrics ([`Metrics::with`]).
pub use prometheus_client;
pub use registry::{Build, Metrics};
#[cfg(feature = "metrics")]
pub use review::{Authorizer, DelegatedAuthorizer};
#[cfg(feature = "metrics")]
pub use server::{Limits, Routes, Server};
#[cfg(feature = "metrics")]
pub use tls::{Tls, TlsError};
