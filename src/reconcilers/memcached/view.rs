//! A Memcached as its reconciler reads it.

use serde::{Deserialize, Serialize};

use crate::object::{Kind, Meta, Text};
use crate::reconcilers::condition::Condition;
use crate::reconcilers::custom::{Switches, custom};

/// A Memcached.
#[derive(Debug, Clone, Deserialize)]
pub struct Memcached {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<Switches>,
    /// The desired state.
    #[serde(default)]
    pub spec: Spec,
    /// The status last written.
    #[serde(default)]
    pub status: Status,
}

/// The desired state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// The number of instances.
    pub size: i32,
    /// Their port.
    pub container_port: i32,
}

/// The observed state. It is written as a whole, so every field is always present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The generation that the status refers to.
    pub observed_generation: i64,
    /// The number of pods.
    pub size: i32,
    /// The number of ready pods.
    pub ready_replicas: i32,
    /// Selects the pods.
    pub selector: Text,
    /// The names of the pods, sorted.
    pub nodes: Box<[Text]>,
    /// The conditions.
    pub conditions: Box<[Condition]>,
}

/// The default port, of memcached itself and of the schema.
pub(super) const DEFAULT_PORT: i32 = 11211;

impl Default for Spec {
    fn default() -> Spec {
        Spec { size: 1, container_port: DEFAULT_PORT }
    }
}

crate::view!(Memcached { meta: Meta<Switches> }: Kind::namespaced("cache.example.com", "v1alpha1", "Memcached", "memcacheds"));
custom!(Memcached);
