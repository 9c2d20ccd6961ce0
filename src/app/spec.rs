//! App's custom resource: spec, status and their rules. The CRD and the decoding follow from these types.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::object::InternedStr;
use crate::schema::{self, kubernetes};
use crate::workload::custom_resource::Json;
use crate::workload::services::ServicePort;
use crate::workload::{BudgetSettings, Condition};

/// The container to run, the number of its replicas, and the ports of its Service.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "app.example.com",
    version = "v1",
    kind = "App",
    plural = "apps",
    namespaced,
    status = "Status",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    category = "workloads",
    doc = "Runs an image in a number of pods. If it has ports, a Service with the same name sends requests to the pods.",
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas", description = "Number of pods."),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "True if the managed resources match the spec and are ready."),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas", description = "Number of available pods."),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", priority = 1, description = "Why the object is ready or not."),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1, description = "Container image."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = schema::dns_label_name("the Service and the container"),
)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Container image, for example 'nginx:1.27'.
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::image())]
    pub image: InternedStr,
    /// Resource limits and requests of the container.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::resources")]
    pub resources: Json,
    /// Environment variables of the container. Their order matters only if one refers to another with $(NAME).
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::env")]
    pub envs: Json,
    /// Sources of environment variables: ConfigMaps and Secrets, all of whose keys become variables.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::env_from")]
    pub env_from: Json,
    /// Ports of the Service. Without ports, there is no Service.
    #[serde(default)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["port", "protocol"]))]
    // A name stands for the number of the one port that has it: with a second port, nothing would say which of the two
    // numbers the container has. `in` is not charged for the length of what it compares, as `==` is.
    #[x_kube(validation = (
        "self.all(p, !has(p.targetPort) || type(p.targetPort) == int || p.targetPort in [''] || \
         self.exists_one(q, has(q.targetPort) && q.targetPort in [p.targetPort]))",
        "two of `ports` must not have the same name as `targetPort`; if several ports lead to the same port of the \
         container, use its number",
    ))]
    pub ports: Box<[ServicePort]>,
    /// Entrypoint of the container. Defaults to the image's ENTRYPOINT.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub command: Box<[InternedStr]>,
    /// Arguments of the entrypoint. Defaults to the image's CMD.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub args: Box<[InternedStr]>,
    /// Readiness probe. The Service sends requests only to pods that pass it.
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
    /// How new pods replace old pods. Defaults to 'RollingUpdate', or to 'Recreate' if a container can write to a
    /// PersistentVolumeClaim: with 'RollingUpdate', a new pod on another node could wait for its volume forever.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::strategy")]
    pub strategy: Json,
    /// Seconds that a pod must be ready before it counts as available. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub min_ready_seconds: Option<i32>,
    /// Limit on the pods that can be evicted at the same time, for example by a node drain. Defaults to no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<Box<BudgetSettings>>,
    /// Kubernetes' pod template, merged over the one that the operator generates. Lists of containers, variables,
    /// volumes, mounts and ports are merged by their keys. The main container is 'app'. To set it, you need permission
    /// to create Deployments. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::pod_template")]
    pub pod_template: Json,
    /// Metadata and spec of a Service, merged over those that the operator generates, for example annotations or
    /// 'type'. Without `ports`, there is no Service. To set it, you need permission to create Services.
    #[serde(default, skip_serializing_if = "Json::is_none")]
    #[schemars(schema_with = "kubernetes::service_template")]
    pub service_template: Json,
}

/// The status of the Deployment, and the operator's conditions.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The metadata.generation that this status describes. It is -1 until a controller has seen the object.
    #[serde(default = "crate::schema::unseen")]
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// Number of pods.
    #[serde(default)]
    pub replicas: i32,
    /// Number of pods with the current template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Number of ready pods.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Number of available pods.
    #[serde(default)]
    pub available_replicas: i32,
    /// Label selector of the pods. HorizontalPodAutoscalers read it through the scale subresource.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub selector: InternedStr,
    /// Number of unavailable pods.
    #[serde(default)]
    pub unavailable_replicas: i32,
    /// Ready, Reconciling, Stalled and Degraded summarize the state. The other conditions are those of the Deployment.
    #[serde(default)]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Box<[Condition]>,
}

fn one() -> i32 {
    1
}
