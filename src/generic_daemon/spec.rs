//! GenericDaemon's custom resource: spec, status and their rules. The CRD and the decoding follow from these types.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

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
    doc = "An image that runs once on every node that has a label.",
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desired", description = "Nodes where the daemon belongs."),
    printcolumn(name = "Installed", type_ = "integer", json_path = ".status.installed", description = "Nodes where the daemon is up to date and ready."),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "True if everything is as the spec says."),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1, description = "The image that runs."),
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
    "`maxUnavailable` must be left out if `updateStrategy` is 'OnDelete'",
))]
#[x_kube(validation = schema::label_and_selector())]
#[x_kube(validation = schema::no_root_if_restricted())]
pub struct Spec {
    /// The image that runs, for example 'mbessler/syslogdocker'.
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::image())]
    pub image: InternedStr,
    /// When nodes pull the image: 'IfNotPresent' (the default), 'Always' or 'Never'. An image that is on a node lets
    /// pods start there while the registry does not respond.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["IfNotPresent", "Always", "Never", ""]))]
    pub image_pull_policy: InternedStr,
    /// The nodes on which it runs: 'key' (they have that label, whatever its value) or
    /// 'key=value'. Without it, every node.
    #[serde(default, deserialize_with = "unless_zero", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 381))]
    #[x_kube(validation = schema::node_label(), validation = schema::prefix_of("label"))]
    pub label: Option<InternedStr>,
    /// The program, in place of the image's entry point.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Box<[InternedStr]>,
    /// The arguments, in place of the image's.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Box<[InternedStr]>,
    /// Environment variables of the container. Their order counts only where one refers to
    /// another with $(NAME).
    #[serde(default, skip_serializing_if = "<[EnvVar]>::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = schema::sum_of_values())]
    pub envs: Box<[EnvVar]>,
    /// Limits and requests of the container.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Directories or files of the node, below those that the administrator allows (--allowed-host-paths; none by
    /// default).
    #[serde(default, skip_serializing_if = "<[HostPath]>::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mountPath"]))]
    pub host_paths: Box<[HostPath]>,
    /// 'Restricted' has the container run as Pod Security 'restricted' asks: not as root, and without capabilities.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["Restricted", ""]))]
    pub security_profile: InternedStr,
    /// The number of the user that the container runs as; the image's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// 'RollingUpdate' (the default) replaces the pods of an old template, 'OnDelete' waits until each is deleted.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["RollingUpdate", "OnDelete", ""]))]
    pub update_strategy: InternedStr,
    /// Nodes whose pod may be missing during a rolling update, a number or a percentage; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::amount_of_nodes")]
    pub max_unavailable: Option<Amount>,
    /// Seconds for which a pod must be ready before it counts as available; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub min_ready_seconds: Option<i32>,
    /// Settings of the pods. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Box<PodSettings>>,
}

/// A directory or file of the node.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPath {
    /// Its path on the node, for example '/var/log'.
    #[schemars(length(max = 1024))]
    // Without '.' and '..', a path below another begins with it.
    #[x_kube(validation = (
        "self.matches('^(/[^/]+)+$') && !(self + '/').matches('/[.][.]?/')",
        "`path` must begin with '/', be longer than that, not end with '/', and have no parts that are empty, \
         '.' or '..', for example '/var/log'",
    ))]
    pub path: InternedStr,
    /// The path where the container finds it.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = schema::mount_path())]
    pub mount_path: InternedStr,
    /// What is at `path`: 'Directory' (the default), 'DirectoryOrCreate', 'File', 'FileOrCreate', 'Socket',
    /// 'CharDevice' or 'BlockDevice'. Where the node has something else, the pod does not start. With
    /// 'DirectoryOrCreate' and 'FileOrCreate', the node creates it.
    #[serde(default, rename = "type", skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "CharDevice", "BlockDevice", ""]))]
    pub kind: InternedStr,
    /// False if the container may write to it; true if absent, also for what is mounted below it (from Kubernetes 1.31 on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// Observed state.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The metadata.generation that this status speaks of; -1 while no controller has seen the
    /// object.
    #[serde(default = "crate::schema::unseen")]
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
    pub conditions: Box<[Condition]>,
}
