//! Memcached's custom resource: spec, status and their rules. The CRD and the decoding follow from these types.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::object::{InternedStr, Quantity};
use crate::schema::{self, kubernetes};
use crate::workload::custom_resource::{Json, unless_zero};
use crate::workload::{BudgetSettings, Condition};

/// Number of memcached instances, their port, and their settings.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "cache.example.com",
    version = "v1alpha1",
    kind = "Memcached",
    plural = "memcacheds",
    namespaced,
    status = "Status",
    shortname = "mc",
    category = "workloads",
    doc = "Runs a few memcached instances. Clients find them through a headless Service with the same name.",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.size",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size", description = "Number of instances."),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "True if the managed resources match the spec and are ready."),
    printcolumn(name = "Available", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].status", description = "True if the desired number of instances is available."),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", priority = 1, description = "Why the object is ready or not."),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes", priority = 1, description = "Names of the pods."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = schema::dns_label_name("the Service"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::memory_limit())]
#[x_kube(validation = schema::item_size())]
#[x_kube(validation = (
    "!has(self.exporter) || self.containerPort != 9150",
    "`containerPort` must not be 9150, which is the port of the `exporter`",
))]
pub struct Spec {
    /// Number of instances. The limit is 3, unless the administrator has raised it. At most this many run at the same
    /// time, not counting pods that are terminating.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 3))]
    pub size: i32,
    /// TCP port on which each instance listens.
    #[serde(default = "default_port")]
    #[schemars(range(min = 0, max = 65535))]
    pub container_port: i32,
    /// Image of memcached. Defaults to the image that the administrator has set (MEMCACHED_IMAGE).
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::own_image())]
    pub image: InternedStr,
    /// Memory for items, for example '256Mi'. Defaults to 64Mi. A change restarts the pods, which empties the caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "String",
        length(max = 8),
        regex(pattern = r"^((1[6-9]|[2-9][0-9]|[1-9][0-9]{2,5})Mi|[1-9][0-9]{0,2}Gi)?$")
    )]
    pub memory: Option<Quantity>,
    /// Maximum number of client connections of an instance. Defaults to 1024.
    #[serde(default, deserialize_with = "unless_zero", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65536))]
    #[x_kube(validation = (
        "self == 0 || self >= 512",
        "`maxConnections` must be at least 512; the default is 1024",
    ))]
    pub max_connections: Option<i32>,
    /// Number of threads of an instance. Defaults to 4.
    #[serde(default, deserialize_with = "unless_zero", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub threads: Option<i32>,
    /// Maximum size of an item, for example '8Mi', and at most half of `memory`. Defaults to 1Mi.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(length(max = 5), regex(pattern = "^([1-9][0-9]{0,2}Mi)?$"))]
    pub max_item_size: InternedStr,
    /// Further settings of memcached's option -o, for example 'idle_timeout=600'. Settings of files, TLS, the proxy and
    /// privileges are not allowed. Neither are slab_chunk_max and slab_sizes, whose meaning differs between versions.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64), regex(pattern = "^[a-z_]+(=[a-z0-9.]+)?$")), extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = schema::memcached_options())]
    #[x_kube(validation = (
        "!self.exists(o, o in ['no_lru_maintainer', 'no_modern']) || !self.exists(o, o.startsWith('temporary_ttl='))",
        "`options` must not have 'temporary_ttl' together with 'no_lru_maintainer' or 'no_modern'",
    ))]
    pub options: Box<[InternedStr]>,
    /// Resource limits and requests of the memcached container. Defaults to a request of 100m of CPU, and to a request
    /// and limit of memory that cover `memory`, tables and connections.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::resources")]
    pub resources: Json,
    /// Adds a container to each pod that exports memcached's metrics on port 9150, named 'metrics'. A change restarts
    /// the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exporter: Option<Box<Exporter>>,
    /// With 'TCP' (the default), a pod is ready when its port accepts a connection. With 'None', it is ready when it
    /// runs.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["TCP", "None", ""]))]
    pub readiness_probe: InternedStr,
    /// Seconds that a pod must be ready before it counts as available. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub min_ready_seconds: Option<i32>,
    /// Limit on the pods that can be evicted at the same time, for example by a node drain. Defaults to no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<Box<BudgetSettings>>,
    /// Kubernetes' pod template, merged over the one that the operator generates. Lists of containers, variables,
    /// volumes, mounts and ports are merged by their keys. The main container is 'memcached'. To set it, you need permission
    /// to create Deployments. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::pod_template")]
    pub pod_template: Json,
    /// Metadata and spec of a Service, merged over those that the operator generates, for example annotations. The
    /// Service stays headless. To set it, you need permission to create Services.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::service_template")]
    pub service_template: Json,
}

/// The exporter of memcached's metrics.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exporter {
    /// Image of the exporter. Defaults to the image that the administrator has set (MEMCACHED_EXPORTER_IMAGE).
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::own_image())]
    pub image: InternedStr,
    /// Resource limits and requests of the container. Defaults to requests of 10m of CPU and 32Mi of memory, and to a
    /// memory limit of 64Mi.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::resources")]
    pub resources: Json,
}

/// Observed state.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The metadata.generation that this status describes. It is -1 until a controller has seen the object.
    #[serde(default = "crate::schema::unseen")]
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// Number of pods.
    #[serde(default)]
    pub size: i32,
    /// Number of ready pods.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Label selector of the pods. HorizontalPodAutoscalers read it through the scale subresource.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub selector: InternedStr,
    /// Names of the pods, sorted.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub nodes: Box<[InternedStr]>,
    /// Ready, Reconciling and Stalled summarize the state. Available, Progressing and Degraded give details.
    #[serde(default)]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Box<[Condition]>,
}

/// memcached's default port, registered at IANA.
pub(super) const DEFAULT_PORT: i32 = 11211;

fn one() -> i32 {
    1
}

fn default_port() -> i32 {
    DEFAULT_PORT
}
