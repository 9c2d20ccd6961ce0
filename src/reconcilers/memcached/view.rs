//! A Memcached, as its reconciler reads it.

use serde::{Deserialize, Serialize};

use crate::object::{Kind, Meta, Text};
use crate::reconcilers::condition::Condition;
use crate::reconcilers::custom::Switches;

/// A Memcached.
#[derive(Debug, Clone, Deserialize)]
pub struct Memcached {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<Switches>,
    /// What is wanted.
    #[serde(default)]
    pub spec: Spec,
    /// What was said last.
    #[serde(default)]
    pub status: Status,
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// How many instances.
    pub size: i32,
    /// Their port.
    pub container_port: i32,
}

/// What is there. All of it is written at once, so every field is always there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The generation that it speaks of.
    pub observed_generation: i64,
    /// Pods there are.
    pub size: i32,
    /// Ready ones.
    pub ready_replicas: i32,
    /// Selects the pods.
    pub selector: Text,
    /// The names of the pods, sorted.
    pub nodes: Box<[Text]>,
    /// How things stand.
    pub conditions: Box<[Condition]>,
}

/// The port of memcached, and the default of the schema.
pub(super) const DEFAULT_PORT: i32 = 11211;

impl Default for Spec {
    fn default() -> Spec {
        Spec { size: 1, container_port: DEFAULT_PORT }
    }
}

crate::view!(Memcached { meta: Meta<Switches> }: Kind::namespaced("cache.example.com", "v1alpha1", "Memcached", "memcacheds"));
