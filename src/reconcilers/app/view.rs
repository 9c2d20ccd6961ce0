//! An App, as its reconciler reads it.

use serde::{Deserialize, Serialize};

use crate::object::{Kind, Meta, Text};
use crate::reconcilers::condition::Condition;
use crate::reconcilers::custom::Switches;
use crate::reconcilers::service::ServicePort;
use crate::reconcilers::workload::{EnvVar, Resources};

/// An App.
#[derive(Debug, Clone, Deserialize)]
pub struct App {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<Switches>,
    /// What is wanted.
    pub spec: Spec,
    /// What was said last.
    #[serde(default)]
    pub status: Status,
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Spec {
    /// How many pods.
    #[serde(default = "one")]
    pub replicas: i32,
    /// What runs.
    pub image: Text,
    /// What it may use.
    #[serde(default)]
    pub resources: Resources,
    /// Its environment.
    #[serde(default)]
    pub envs: Box<[EnvVar]>,
    /// How it is reached.
    #[serde(default)]
    pub ports: Box<[ServicePort]>,
}

/// What is there. All of it is written at once, so every field is always there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The generation of the App that it speaks of.
    pub observed_generation: i64,
    /// Pods there are.
    pub replicas: i32,
    /// Of the newest template.
    pub updated_replicas: i32,
    /// Ready.
    pub ready_replicas: i32,
    /// Ready for long enough.
    pub available_replicas: i32,
    /// Missing.
    pub unavailable_replicas: i32,
    /// How things stand: first our own words, then the Deployment's.
    pub conditions: Box<[Condition]>,
}

/// The default of the schema.
fn one() -> i32 {
    1
}

crate::view!(App { meta: Meta<Switches> }: Kind::namespaced("app.example.com", "v1", "App", "apps"));
