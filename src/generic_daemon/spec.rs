//! GenericDaemon's custom resource: spec, status and their rules. The CRD and the decoding follow from these types.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::InternedStr;
use crate::schema;
use crate::workload::container::unless_zero;
use crate::workload::{Amount, Condition, EnvVar, PodSettings, Resources};

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
    doc = "Runs an image once on each node that has a label.",
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desired", description = "Number of nodes that should run the daemon."),
    printcolumn(name = "Installed", type_ = "integer", json_path = ".status.installed", description = "Nodes where the daemon is up to date and ready."),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "True if the managed resources match the spec and are ready."),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", priority = 1, description = "Why the object is ready or not."),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1, description = "Container image."),
    printcolumn(name = "Label", type_ = "string", json_path = ".spec.label", priority = 1, description = "Label of its nodes; every node if empty."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    // The DaemonSet controller names a ControllerRevision after the DaemonSet, `-` and up to 10
    // characters; an object's name has at most 253.
    validation = (
        "size(self.metadata.name) <= 242",
        "`metadata.name` must be at most 242 characters long, because the DaemonSet's revisions have it with 11 \
         characters more",
    ),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "!has(self.maxUnavailable) || self.maxUnavailable in [dyn(0)] || !has(self.updateStrategy) || \
     self.updateStrategy in ['', 'RollingUpdate']",
    "`maxUnavailable` must not be set if `updateStrategy` is 'OnDelete'",
))]
#[x_kube(validation = schema::label_and_selector())]
#[x_kube(validation = schema::no_root_if_restricted())]
pub struct Spec {
    /// Container image, for example 'mbessler/syslogdocker'.
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::image())]
    pub image: InternedStr,
    /// When nodes pull the image: 'IfNotPresent' (the default), 'Always' or 'Never'. With 'IfNotPresent', a pod can
    /// start without the registry on a node that already has the image.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["IfNotPresent", "Always", "Never", ""]))]
    pub image_pull_policy: InternedStr,
    /// Label of the nodes that run the daemon: 'key' for any value, or 'key=value'. Defaults to all nodes.
    #[serde(default, deserialize_with = "unless_zero", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 381))]
    #[x_kube(validation = schema::node_label(), validation = schema::prefix_of("label"))]
    pub label: Option<InternedStr>,
    /// Entrypoint of the container. Defaults to the image's ENTRYPOINT.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Box<[InternedStr]>,
    /// Arguments of the entrypoint. Defaults to the image's CMD.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Box<[InternedStr]>,
    /// Environment variables of the container. Their order matters only if one refers to another with $(NAME).
    #[serde(default, skip_serializing_if = "<[EnvVar]>::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = schema::sum_of_values())]
    pub envs: Box<[EnvVar]>,
    /// Resource limits and requests of the container.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Directories or files of the node. The administrator must allow each of them, or a directory above it
    /// (--allowed-host-paths). By default, none is allowed.
    #[serde(default, skip_serializing_if = "<[HostPath]>::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mountPath"]))]
    pub host_paths: Box<[HostPath]>,
    /// With 'Restricted', the container meets the Pod Security Standard 'restricted': it does not run as root and has
    /// no capabilities.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["Restricted", ""]))]
    pub security_profile: InternedStr,
    /// ID of the user that runs the container. Defaults to the image's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// With 'RollingUpdate' (the default), the controller replaces old pods. With 'OnDelete', it replaces a pod only
    /// after you delete it.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["RollingUpdate", "OnDelete", ""]))]
    pub update_strategy: InternedStr,
    /// Number or percentage of nodes whose pod can be unavailable during a rolling update. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::amount_of_nodes")]
    pub max_unavailable: Option<Amount>,
    /// Seconds that a pod must be ready before it counts as available. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub min_ready_seconds: Option<i32>,
    /// Settings of the pods. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Box<PodSettings>>,
    /// Kubernetes' pod template, merged over the one that the operator generates. Lists of containers, variables,
    /// volumes, mounts and ports are merged by their keys. The main container is 'daemon'. To set it, you need permission
    /// to create DaemonSets. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::template::pod_template")]
    pub pod_template: Option<Box<Value>>,
}

/// A directory or file of the node.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPath {
    /// Path on the node, for example '/var/log'.
    #[schemars(length(max = 1024))]
    // Without '.' and '..', a path below another begins with it.
    #[x_kube(validation = (
        "self.matches('^/$|^(/[^/]+)+$') && !(self + '/').matches('/[.][.]?/')",
        "`path` must begin with '/', must not end with '/' unless it is '/', and must not have parts that \
         are empty, '.' or '..', for example '/var/log'",
    ))]
    pub path: InternedStr,
    /// Path in the container.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = schema::mount_path())]
    pub mount_path: InternedStr,
    /// Type of the path: 'Directory' (the default), 'DirectoryOrCreate', 'File', 'FileOrCreate', 'Socket', 'CharDevice'
    /// or 'BlockDevice'. The pod does not start on a node where the path has another type. With 'DirectoryOrCreate' and
    /// 'FileOrCreate', the node creates a missing path.
    #[serde(default, rename = "type", skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "CharDevice", "BlockDevice", ""]))]
    pub kind: InternedStr,
    /// If false, the container can write to it. Defaults to true. From Kubernetes 1.31 on, true also covers mounts
    /// below the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
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
