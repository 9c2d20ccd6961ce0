//! GenericDaemon.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::Condition;
use super::app::EnvVar;
use super::pod::{PodSettings, Resources};

/// Which image runs, and on which nodes.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "mydomain.com",
    version = "v1beta1",
    kind = "GenericDaemon",
    plural = "genericdaemons",
    namespaced,
    status = "GenericDaemonStatus",
    shortname = "gd",
    category = "workloads",
    doc = "An image that runs once on every node that has a label.",
    derive = "PartialEq",
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desired", description = "Nodes where the daemon belongs."),
    printcolumn(name = "Installed", type_ = "integer", json_path = ".status.installed", description = "Nodes where the daemon is up to date and ready."),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "True if everything is as the spec says."),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1, description = "The image that runs."),
    printcolumn(name = "Label", type_ = "string", json_path = ".spec.label", priority = 1, description = "Label of its nodes; every node if empty."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = super::schema::daemon_name(),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = super::schema::pace_of_nodes(), validation = super::schema::label_and_selector(), validation = super::schema::no_root_if_restricted())]
pub struct GenericDaemonSpec {
    /// The image that runs, for example 'mbessler/syslogdocker'.
    #[schemars(length(max = 512))]
    #[x_kube(validation = super::schema::image())]
    pub image: String,
    /// When nodes pull the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::image_pull_policy")]
    pub image_pull_policy: Option<String>,
    /// The nodes on which it runs: 'key' (they have that label, whatever its value) or
    /// 'key=value'. Without it, every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 381))]
    #[x_kube(validation = super::schema::node_label(), validation = super::schema::prefix_of("label"))]
    pub label: Option<String>,
    /// The program, in place of the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// The arguments, in place of the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// Environment variables of the container. Their order counts only where one refers to
    /// another with $(NAME).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = super::schema::sum_of_values())]
    pub envs: Vec<EnvVar>,
    /// Limits and requests of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Directories or files of the node, below those that the administrator allows (--allowed-host-paths; none by
    /// default).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mountPath"]))]
    pub host_paths: Vec<HostPath>,
    /// 'Restricted' has the container run as Pod Security 'restricted' asks: not as root, and without capabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::security_profile")]
    pub security_profile: Option<String>,
    /// The number of the user that the container runs as; the image's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// 'RollingUpdate' (the default) replaces the pods of an old template, 'OnDelete' waits until each is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::daemon_strategy")]
    pub update_strategy: Option<String>,
    /// Nodes whose pod may be missing during a rolling update, a number or a percentage; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::amount_of_nodes")]
    pub max_unavailable: Option<IntOrString>,
    /// Seconds for which a pod must be ready before it counts as available; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub min_ready_seconds: Option<i32>,
    /// Settings of the pods. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSettings>,
}

/// A directory or file of the node.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HostPath {
    /// Its path on the node, for example '/var/log'.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = super::schema::host_path())]
    pub path: String,
    /// The path where the container finds it.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = super::schema::mount_path())]
    pub mount_path: String,
    /// What is at `path`; 'Directory' if absent. Where the node has something else, the pod does not start. With
    /// 'DirectoryOrCreate' and 'FileOrCreate', the node makes it.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::host_path_type")]
    pub kind: Option<String>,
    /// False if the container may write to it; true if absent, also for what is mounted below it (from Kubernetes 1.31 on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// Observed state.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GenericDaemonStatus {
    /// The metadata.generation that this status speaks of; -1 while no controller has seen the
    /// object.
    #[serde(default = "super::unseen")]
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// On how many nodes the daemon belongs.
    #[serde(default)]
    pub desired: i32,
    /// On how many nodes the daemon is up to date and ready.
    #[serde(default)]
    pub installed: i32,
    /// Ready, Reconciling and Stalled sum up; Available, Progressing and Degraded say more.
    #[serde(default)]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
