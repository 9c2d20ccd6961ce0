//! The custom resources as a person writes them: types, defaults and validation. No behaviour.
//!
//! Guarantees
//! - [`crds`] is the one source of `artifacts/crds/`: the files are generated from these types,
//!   and a test regenerates and compares them.
//! - What the API server accepts, the operator can carry out: bounds and CEL rules refuse the
//!   rest with a message that says what is allowed. Names are part of that: a Memcached and an App
//!   have the name of their Service, so theirs must be a DNS label.
//! - Every string, list and map is bounded, so that the cost of each rule is too.
//! - An object that no controller has seen says so: `status` defaults to observedGeneration -1
//!   and Ready=Unknown, so no tool calls it healthy.
//! - `null` means the same as absent: no field is nullable.
//!
//! The operator does not hold these types in memory: each reconciler has a view of what it reads.
//! This room is for schemas, for tests and for people who write clients.

// `KubeSchema` makes a helper type, of the same visibility, that nobody can reach.
#![allow(unreachable_pub)]

mod condition;
mod pod;
mod container;
mod memcached;
mod generic_daemon;
mod app;
mod schema;
mod finish;

pub use app::{
    App, AppSpec, AppStatus, EnvVar, EnvVarSource, FieldSelector, KeySelector,
    ResourceFieldSelector, RollingUpdate, ServicePort, Strategy,
};
pub use condition::Condition;
pub use container::{
    ClaimVolume, ConfigMapVolume, EmptyDirVolume, HttpGet, Probe, Resources, SecretVolume,
    TcpSocket, Volume,
};
pub use generic_daemon::{GenericDaemon, GenericDaemonSpec, GenericDaemonStatus};
pub use memcached::{Memcached, MemcachedSpec, MemcachedStatus};
pub use pod::{PodDisruptionBudget, PodSettings, SecretName, Toleration, TopologySpreadConstraint};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The CustomResourceDefinitions, by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![App::crd(), GenericDaemon::crd(), Memcached::crd()];
    crds.iter_mut().for_each(finish::finish);
    crds
}

/// `observedGeneration` while no controller has seen the object.
fn unseen() -> i64 {
    -1
}
