//! Deployments and DaemonSets: the parts that the operator sets and reads.
//!
//! Guarantees
//! - The same types are decoded from the wire, compared with the desired state, and sent: what is
//!   sent is what is compared.
//! - Only fields that the operator can set, or that can stand in the way of those, are here. An
//!   injected sidecar, a field that the API server fills in, or somebody's annotation is neither
//!   compared nor sent.
//! - Lists are compared by the keys that server-side apply merges them by: containers and
//!   variables by name, container ports by number and protocol.

mod template;
mod container;
mod env;
mod resources;
mod deployment;
mod daemon_set;

pub use container::{
    Capabilities, Container, ContainerPort, ContainerSecurity, Probe, Seccomp, TcpSocket,
};
pub use daemon_set::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
pub use deployment::{
    Amount, ChildCondition, Deployment, DeploymentSpec, DeploymentStatus, RollingUpdate, Strategy,
};
pub use env::{EnvVar, FieldRef, KeyRef, ResourceRef, ValueSource};
pub use resources::{Quantities, Resources};
pub use template::{
    Affinity, MatchExpression, NodeAffinity, NodeSelector, NodeSelectorTerm, PodMeta, PodSecurity,
    PodSpec, PodTemplate, Selector,
};
