//! The custom resources as a person writes them: types, defaults and validation. No behaviour.
//!
//! Guarantees
//! - [`crds`] is the one source of `artifacts/crds/`: the files are generated from these types,
//!   and a test regenerates and compares them.
//! - What the API server accepts, the operator can carry out, but for the form of keys of maps (labels, annotations,
//!   extended resources), and for what a cluster's own settings decide (the range of node ports): bounds and CEL rules
//!   refuse the rest with a message that says what is allowed. Names are part of that: a Memcached and an App
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
mod memcached;
mod generic_daemon;
mod app;
mod schema;

pub use app::{
    App, AppSpec, AppStatus, EnvVar, EnvVarSource, FieldSelector, KeySelector,
    ResourceFieldSelector, RollingUpdate, ServicePort, Strategy,
};
pub use condition::Condition;
pub use generic_daemon::{GenericDaemon, GenericDaemonSpec, GenericDaemonStatus};
pub use memcached::{Memcached, MemcachedSpec, MemcachedStatus};
pub use pod::{
    ClaimVolume, ConfigMapVolume, EmptyDirVolume, HttpGet, PodDisruptionBudget, PodSettings, Probe,
    Resources, SecretName, SecretVolume, TcpSocket, Toleration, TopologySpreadConstraint, Volume,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

/// The CustomResourceDefinitions, by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![App::crd(), GenericDaemon::crd(), Memcached::crd()];
    crds.iter_mut().for_each(finish);
    crds
}

/// `observedGeneration` while no controller has seen the object.
fn unseen() -> i64 {
    -1
}

/// Completes what the derives made: the status' defaults, and no nullable field. (The API server
/// treats a null in a field that is not nullable as absent, so nobody has to tell them apart.)
fn finish(crd: &mut CustomResourceDefinition) {
    let kind = crd.spec.names.kind.clone();
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut());
        let schema = schema.expect("the derive gives every version a schema");
        forbid_null(schema);
        let properties = schema.properties.as_mut().expect("the root has properties");
        if kind == "GenericDaemon" {
            without_spreading(properties.get_mut("spec").expect("every kind has a spec"));
        }
        let status = properties.get_mut("status").expect("every kind has a status");
        status.default = Some(JSON(untouched(&kind)));
    }
}

/// A daemon runs once on each node: there is nothing to spread.
fn without_spreading(spec: &mut JSONSchemaProps) {
    let pod = spec.properties.as_mut().and_then(|fields| fields.get_mut("pod"));
    let fields = pod.and_then(|pod| pod.properties.as_mut()).expect("every kind has `pod`");
    fields.remove("topologySpreadConstraints").expect("`pod` has it");
}

/// The status of an object that no controller has seen.
fn untouched(kind: &str) -> Value {
    let condition = |name: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "observedGeneration": -1, "lastTransitionTime": "1970-01-01T00:00:00Z",
        })
    };
    let waiting = "Waiting for the controller";
    let mut conditions = vec![
        condition("Ready", "Unknown", "Pending", waiting),
        condition("Reconciling", "True", "Pending", waiting),
    ];
    if kind == "Memcached" {
        conditions.push(condition(
            "Available",
            "Unknown",
            "Reconciling",
            "Starting reconciliation",
        ));
    }
    json!({ "observedGeneration": -1, "conditions": conditions })
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        forbid_null(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        forbid_null(items);
    }
}
