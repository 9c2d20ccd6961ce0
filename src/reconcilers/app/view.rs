//! An App as its reconciler reads it.

use serde::{Deserialize, Serialize};

use crate::object::{Kind, Meta, Text};
use crate::reconcilers::condition::Condition;
use crate::reconcilers::custom::{Switches, custom};
use crate::reconcilers::service::ServicePort;
use crate::reconcilers::workload::{EnvVar, Resources};

/// An App.
#[derive(Debug, Clone, Deserialize)]
pub struct App {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<Switches>,
    /// The desired state.
    pub spec: Spec,
    /// The status last written.
    #[serde(default)]
    pub status: Status,
}

/// The desired state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Spec {
    /// The number of pods.
    #[serde(default = "one")]
    pub replicas: i32,
    /// The image that runs.
    pub image: Text,
    /// The resources it may use.
    #[serde(default)]
    pub resources: Resources,
    /// Its environment.
    #[serde(default)]
    pub envs: Box<[EnvVar]>,
    /// The ports by which it is reached.
    #[serde(default)]
    pub ports: Box<[ServicePort]>,
}

/// The observed state. It is written as a whole, so every field is always present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The generation of the App that the status refers to.
    pub observed_generation: i64,
    /// The number of pods.
    pub replicas: i32,
    /// Pods of the newest template.
    pub updated_replicas: i32,
    /// Ready pods.
    pub ready_replicas: i32,
    /// Pods that have been ready for long enough.
    pub available_replicas: i32,
    /// Missing pods.
    pub unavailable_replicas: i32,
    /// Selects the pods.
    pub selector: Text,
    /// The conditions: our own summary, then the Deployment's, then Degraded.
    pub conditions: Box<[Condition]>,
}

/// The default of the schema.
fn one() -> i32 {
    1
}

crate::view!(App { meta: Meta<Switches> }: Kind::namespaced("app.example.com", "v1", "App", "apps"));
custom!(App);
