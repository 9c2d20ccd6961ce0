//! A GenericDaemon as its reconciler reads it.

use serde::{Deserialize, Serialize};

use crate::object::{Kind, Meta, Text};
use crate::reconcilers::condition::Condition;
use crate::reconcilers::custom::{Switches, custom};

/// A GenericDaemon.
#[derive(Debug, Clone, Deserialize)]
pub struct GenericDaemon {
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
    /// The image that runs.
    pub image: Text,
    /// The label of the nodes where it runs, `key` or `key=value`; every node if absent.
    #[serde(default)]
    pub label: Option<Text>,
}

/// The observed state. It is written as a whole, so every field is always present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The generation that the status refers to.
    pub observed_generation: i64,
    /// Nodes where the daemon belongs.
    pub desired: i32,
    /// Nodes where it is up to date and ready.
    pub installed: i32,
    /// The conditions.
    pub conditions: Box<[Condition]>,
}

crate::view!(GenericDaemon { meta: Meta<Switches> }: Kind::namespaced("mydomain.com", "v1beta1", "GenericDaemon", "genericdaemons"));
custom!(GenericDaemon);
