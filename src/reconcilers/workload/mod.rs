//! Deployments and DaemonSets, as far as the operator sets and reads them.
//!
//! Guarantees
//! - The same types are decoded from the wire, compared with what is desired, and sent: what is
//!   sent is what is compared.
//! - Only fields the operator can set are here. An injected sidecar, a field that the API server
//!   fills in and somebody's annotation are neither compared nor sent.
//! - Lists are compared by the keys that server-side apply merges them by: containers and
//!   variables by name, container ports by number and protocol.

mod template;
mod container;
mod env;
mod resources;
mod deployment;
mod daemon_set;
mod rollout;

pub use container::{Capabilities, Container, ContainerPort, ContainerSecurity, Seccomp};
pub use daemon_set::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
pub use deployment::{
    Amount, ChildCondition, Deployment, DeploymentSpec, DeploymentStatus, RollingUpdate, Strategy,
};
pub use env::{EnvVar, FieldRef, KeyRef, ResourceRef, ValueSource};
pub use resources::{Quantities, Resources};
pub use rollout::Rollout;
pub use template::{
    Affinity, MatchExpression, NodeAffinity, NodeSelector, NodeSelectorTerm, PodMeta, PodSecurity,
    PodSpec, PodTemplate, Selector,
};

/// Whether what is wanted, if anything, is there.
fn is_set<T: PartialEq>(wanted: &Option<T>, there: &Option<T>) -> bool {
    wanted.is_none() || wanted == there
}
