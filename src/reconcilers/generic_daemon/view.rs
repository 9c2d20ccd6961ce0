//! A GenericDaemon, as its reconciler reads it.

use serde::{Deserialize, Serialize};

use crate::object::{Kind, Meta, Text};
use crate::reconcilers::condition::Condition;
use crate::reconcilers::custom::Switches;

/// A GenericDaemon.
#[derive(Debug, Clone, Deserialize)]
pub struct GenericDaemon {
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
    /// What runs.
    pub image: Text,
    /// On which nodes: `key` or `key=value`; on every node if absent.
    #[serde(default)]
    pub label: Option<Text>,
}

/// What is there. All of it is written at once, so every field is always there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The generation that it speaks of.
    pub observed_generation: i64,
    /// Nodes where the daemon belongs.
    pub desired: i32,
    /// Nodes where it is up to date and ready.
    pub installed: i32,
    /// How things stand.
    pub conditions: Box<[Condition]>,
}

crate::view!(GenericDaemon { meta: Meta<Switches> }: Kind::namespaced("mydomain.com", "v1beta1", "GenericDaemon", "genericdaemons"));
