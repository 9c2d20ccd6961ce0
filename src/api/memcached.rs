//! Memcached.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::Condition;
use super::pod::PodSettings;

/// How many memcached instances are wanted, and their port.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "cache.example.com",
    version = "v1alpha1",
    kind = "Memcached",
    plural = "memcacheds",
    namespaced,
    status = "MemcachedStatus",
    shortname = "mc",
    category = "workloads",
    doc = "A few memcached instances, and a headless Service of the same name by which clients find them.",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.size",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size", description = "How many instances are wanted."),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "Whether everything is as the spec says."),
    printcolumn(name = "Available", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].status", description = "Whether as many instances as wanted can be used."),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes", priority = 1, description = "The names of the pods."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = super::schema::dns_label_name("the Service"),
)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedSpec {
    /// How many instances run: 0 to 3. Never more than that run at once.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 3))]
    pub size: i32,
    /// The TCP port on which each instance listens.
    #[serde(default = "memcached_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: i32,
    /// Settings of the pods. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSettings>,
}

/// What is there.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedStatus {
    /// The metadata.generation that this status speaks of; -1 while no controller has seen the
    /// object.
    #[serde(default = "super::unseen")]
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// How many pods there are.
    #[serde(default)]
    pub size: i32,
    /// How many of them are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Selects the pods; read by HorizontalPodAutoscalers through the scale subresource.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub selector: String,
    /// The names of the pods, sorted.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub nodes: Vec<String>,
    /// Ready, Reconciling and Stalled sum up; Available, Progressing and Degraded say more.
    #[serde(default)]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

fn one() -> i32 {
    1
}

/// IANA's port of memcached.
fn memcached_port() -> i32 {
    11211
}
