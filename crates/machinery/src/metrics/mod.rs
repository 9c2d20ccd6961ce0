//! Observability of the operator: metrics for Prometheus, health for the kubelet and people.
//!
//! Guarantees
//! - Names, labels and meanings are those that dashboards for client-go and controller-runtime know
//!   (`workqueue_*`, `controller_runtime_*`, `rest_client_*`, `leader_election_*`), and those that
//!   client-go defines but never fills (`reflector_*`). The rest begins with the program's
//!   name ([`Identity::metrics_prefix`](crate::identity::Identity::metrics_prefix)).
//! - Prometheus text 0.0.4 and OpenMetrics 1.0.0 say the same; the client chooses which is sent.
//! - No object name and no namespace is a label: the number of series does not grow with the
//!   objects, and a scrape does not reveal what runs in the cluster.
//! - Observing costs short locks and atomics, and no more memory than a few labels, which are freed
//!   again; what has a current value is read at the scrape instead.
//! - The server answers GET and HEAD only, reads no body, and bounds headers, connections and the
//!   life of each. A scrape that hangs holds up no other.
//! - On request, metrics are served over TLS 1.3 only, with certificates that may be renewed while
//!   in use, and only to those whom the API server admits ([`Reviews`]); tokens are not kept.
//! - [`Checks`] report for each check, by name, what is wrong and since when.

mod text;
mod series;
mod observers;
mod collectors;
mod registry;
mod checks;
mod review;
mod tls;
mod server;

pub use checks::{Checks, Report};
pub use observers::QueueObserver;
/// For metrics of your own ([`Metrics::with`]).
pub use prometheus_client;
pub use registry::{Build, Metrics};
pub use review::{Access, Reviews};
pub use server::{Limits, Routes, Server};
pub use text::Format;
pub use tls::{Tls, TlsError};
