//! GenericDaemon's custom resource: spec, status and their rules. The CRD and the decoding follow from these types.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::object::InternedStr;
use crate::schema::{self, kubernetes};
use crate::workload::Condition;
use crate::workload::custom_resource::{Json, unless_zero};

/// Which image runs, and on which nodes.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "mydomain.com",
    version = "v1beta1",
    kind = "GenericDaemon",
    plural = "genericdaemons",
    namespaced,
    status = "Status",
    shortname = "gd",
    category = "workloads",
    doc = "Runs one pod on each node with a label.",
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desired", description = "Number of nodes that should run the daemon."),
    printcolumn(name = "Installed", type_ = "integer", json_path = ".status.installed", description = "Nodes where the daemon is up to date and ready."),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "True if the managed resources match the spec and are ready."),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", priority = 1, description = "Why the object is ready or not."),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1, description = "Container image."),
    printcolumn(name = "Label", type_ = "string", json_path = ".spec.label", priority = 1, description = "Label that selects the nodes; every node if empty."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    // The DaemonSet controller names a ControllerRevision after the DaemonSet, `-` and up to 10
    // characters; an object's name has at most 253.
    validation = (
        "size(self.metadata.name) <= 242",
        "`metadata.name` must have at most 242 characters, because Kubernetes appends 11 characters to it to name the \
         DaemonSet's revisions",
    ),
)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Container image, for example 'mbessler/syslogdocker'.
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::image())]
    pub image: InternedStr,
    /// Label of the nodes that run the daemon: 'key' for any value, or 'key=value'. Defaults to all nodes.
    #[serde(default, deserialize_with = "unless_zero", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 381))]
    #[x_kube(validation = schema::node_label())]
    pub label: Option<InternedStr>,
    /// Entrypoint of the container. Defaults to the image's ENTRYPOINT.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub command: Box<[InternedStr]>,
    /// Arguments of the entrypoint. Defaults to the image's CMD.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub args: Box<[InternedStr]>,
    /// Environment variables of the container. Their order matters only if one refers to another with $(NAME).
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::env")]
    pub envs: Json,
    /// Sources of environment variables: ConfigMaps and Secrets, all of whose keys become variables.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::env_from")]
    pub env_from: Json,
    /// Resource limits and requests of the container.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::resources")]
    pub resources: Json,
    /// Readiness probe. A rolling update waits until the pod passes it.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::probe")]
    pub readiness_probe: Json,
    /// Liveness probe. The kubelet restarts the container when the probe fails.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::probe")]
    pub liveness_probe: Json,
    /// Startup probe. The other probes start after it has passed.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::probe")]
    pub startup_probe: Json,
    /// With 'Restricted', the container meets the Pod Security Standard 'restricted': it does not run as root and has
    /// no capabilities.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["Restricted", ""]))]
    pub security_profile: InternedStr,
    /// How new pods replace old pods: on one node at a time by default, or with 'OnDelete' only after you delete the old
    /// pod.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::update_strategy")]
    pub update_strategy: Json,
    /// Seconds that a pod must be ready before it counts as available. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub min_ready_seconds: Option<i32>,
    /// Kubernetes' pod template, merged over the one that the operator generates. Lists of containers, variables,
    /// volumes, mounts and ports are merged by their keys. The main container is 'daemon'. To set it, you need permission
    /// to create DaemonSets. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::pod_template")]
    pub pod_template: Json,
}

/// Observed state.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The metadata.generation that this status describes. It is -1 until a controller has seen the object.
    #[serde(default = "crate::schema::unseen")]
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// Number of nodes that should run the daemon.
    #[serde(default)]
    pub desired: i32,
    /// Number of nodes on which the daemon is up to date and ready.
    #[serde(default)]
    pub installed: i32,
    /// Ready, Reconciling and Stalled summarize the state. Available, Progressing and Degraded give details.
    #[serde(default)]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Box<[Condition]>,
}
