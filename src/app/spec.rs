//! App's custom resource: spec, status and their rules. The CRD and the decoding follow from these types.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::InternedStr;
use crate::schema;
use crate::schema::parts::{Probe, Volume};
use crate::workload::services::ServicePort;
use crate::workload::{BudgetSettings, Condition, EnvVar, PodSettings, Resources, Strategy};

/// A program, how many of it, and how it is reached.
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
    doc = "A program that runs in a number of pods and, if it has ports, a Service of the same name.",
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas", description = "Number of pods."),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "True if everything is as the spec says."),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas", description = "Pods that can be used."),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1, description = "The image that runs."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = schema::dns_label_name("the Service and the container"),
)]
#[serde(rename_all = "camelCase")]
// Applying a Deployment without the name would leave the old one: `serviceAccount`, which the API server sets
// beside it, brings it back.
#[x_kube(validation = (
    "!has(oldSelf.serviceAccountName) || oldSelf.serviceAccountName == '' || (has(self.serviceAccountName) && \
     self.serviceAccountName != '')",
    "`serviceAccountName` cannot be left out once it was set: set 'default'",
))]
#[x_kube(validation = schema::no_root_if_restricted())]
#[x_kube(validation = schema::probes_a_named_port("readinessProbe"))]
#[x_kube(validation = schema::probes_a_named_port("livenessProbe"))]
#[x_kube(validation = schema::probes_a_named_port("startupProbe"))]
pub struct Spec {
    /// Number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// The image that runs, for example 'nginx:1.27'.
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::image())]
    pub image: InternedStr,
    /// When nodes pull the image: 'IfNotPresent' (the default), 'Always' or 'Never'. An image that is on a node lets
    /// pods start there while the registry does not respond.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["IfNotPresent", "Always", "Never", ""]))]
    pub image_pull_policy: InternedStr,
    /// Limits and requests of the container.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Environment variables of the container. Their order counts only where one refers to
    /// another with $(NAME).
    #[serde(default)]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = schema::sum_of_values())]
    pub envs: Box<[EnvVar]>,
    /// Ports of the Service. Without any there is no Service.
    #[serde(default)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["port", "protocol"]))]
    // '' is TCP too, and the list's keys do not know that.
    #[x_kube(validation = (
        "self.all(p, p.protocol != '' || !self.exists(q, q.port == p.port && q.protocol == 'TCP'))",
        "each of `ports` must have a `port` and `protocol` of its own",
    ))]
    #[x_kube(validation = (
        "self.all(p, !has(p.name) || p.name == '' || self.exists_one(q, has(q.name) && q.name == p.name)) && \
         self.all(p, !has(p.nodePort) || p.nodePort == 0 || self.exists_one(q, has(q.nodePort) && q.nodePort == \
         p.nodePort && (q.protocol == p.protocol || [q.protocol, p.protocol].all(r, r in ['', 'TCP']))))",
        "each of `ports` must have a `name` and a `nodePort` of its own, where it has one",
    ))]
    // A name stands for the number of the one port that has it: with a second port, nothing would say which of the two
    // numbers the container has. `in` is not charged for the length of what it compares, as `==` is.
    #[x_kube(validation = (
        "self.all(p, !has(p.targetPort) || type(p.targetPort) == int || p.targetPort in [''] || \
         self.exists_one(q, has(q.targetPort) && q.targetPort in [p.targetPort]))",
        "a name as `targetPort` must belong to one of `ports` only: where several lead to the same port of the \
         container, write its number",
    ))]
    pub ports: Box<[ServicePort]>,
    /// The program, in place of the image's entry point.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Box<[InternedStr]>,
    /// The arguments, in place of the image's.
    #[serde(default, skip_serializing_if = "<[InternedStr]>::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Box<[InternedStr]>,
    /// Passes while a pod can take requests: the Service sends none to one that is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Probe>")]
    pub readiness_probe: Option<Box<Value>>,
    /// Fails when the container has to be restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Probe>")]
    pub liveness_probe: Option<Box<Value>>,
    /// Passes once the program has started; the other probes wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Probe>")]
    pub startup_probe: Option<Box<Value>>,
    /// Files of ConfigMaps, Secrets, claims, and empty directories.
    #[serde(default, skip_serializing_if = "<[Value]>::is_empty")]
    #[schemars(with = "Vec<Volume>", length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = (
        "self.all(v, self.exists_one(w, w.mountPath == v.mountPath))",
        "each of `volumes` must have a `mountPath` of its own",
    ))]
    pub volumes: Box<[Value]>,
    /// The ServiceAccount of the pods. Once set it cannot be left out: set 'default' to go back.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::optional_name_in("serviceAccountName"))]
    pub service_account_name: InternedStr,
    /// 'Restricted' has the container run as Pod Security 'restricted' asks: not as root, and without
    /// capabilities.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(extend("enum" = ["Restricted", ""]))]
    pub security_profile: InternedStr,
    /// The number of the user that the container runs as; the image's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// The number of the group that volumes belong to; `runAsUser` if absent, `securityProfile` is
    /// 'Restricted', and there are volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub fs_group: Option<i64>,
    /// Replacement of old pods by those of a new template. If absent: 'Recreate' with a claim that is not `readOnly`,
    /// since a new pod on another node could wait for the volume for ever, and 'RollingUpdate' otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Box<Strategy>>,
    /// Seconds for which a pod must be ready before it counts as available; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub min_ready_seconds: Option<i32>,
    /// Bound on the pods that a drain of nodes takes away at a time; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<Box<BudgetSettings>>,
    /// Settings of the pods. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Box<PodSettings>>,
}

/// The status of the Deployment, and what the operator says of it.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The metadata.generation that this status speaks of; -1 while no controller has seen the
    /// object.
    #[serde(default = "crate::schema::unseen")]
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// Number of pods.
    #[serde(default)]
    pub replicas: i32,
    /// Number of pods of the newest template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Number of ready pods.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Number of pods that can be used.
    #[serde(default)]
    pub available_replicas: i32,
    /// Selects the pods; read by HorizontalPodAutoscalers through the scale subresource.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub selector: InternedStr,
    /// Number of missing pods.
    #[serde(default)]
    pub unavailable_replicas: i32,
    /// Ready, Reconciling, Stalled and Degraded sum up; the others are the Deployment's.
    #[serde(default)]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Box<[Condition]>,
}

fn one() -> i32 {
    1
}
