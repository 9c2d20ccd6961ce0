//! App.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::Condition;
use super::pod::{PodDisruptionBudget, PodSettings, Probe, Resources, Volume};
use super::schema;

/// A program, how many of it, and how it is reached.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "app.example.com",
    version = "v1",
    kind = "App",
    plural = "apps",
    namespaced,
    status = "AppStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    category = "workloads",
    doc = "A program that runs in a number of pods and, if it has ports, a Service of the same name.",
    derive = "PartialEq",
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas", description = "Number of pods."),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "True if everything is as the spec says."),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas", description = "Pods that can be used."),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1, description = "The image that runs."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = schema::dns_label_name("the Service and the container"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::service_account_stays(), validation = schema::no_root_if_restricted(), validation = schema::probes_a_named_port("readinessProbe"), validation = schema::probes_a_named_port("livenessProbe"), validation = schema::probes_a_named_port("startupProbe"))]
pub struct AppSpec {
    /// Number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// The image that runs, for example 'nginx:1.27'.
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::image())]
    pub image: String,
    /// When nodes pull the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::image_pull_policy")]
    pub image_pull_policy: Option<String>,
    /// Limits and requests of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Environment variables of the container. Their order counts only where one refers to
    /// another with $(NAME).
    #[serde(default)]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = schema::sum_of_values())]
    pub envs: Vec<EnvVar>,
    /// Ports of the Service. Without any there is no Service.
    #[serde(default)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["port", "protocol"]))]
    #[x_kube(validation = schema::ports_differ(), validation = schema::port_names(), validation = schema::target_port_names())]
    pub ports: Vec<ServicePort>,
    /// The program, in place of the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// The arguments, in place of the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// Passes while a pod can take requests: the Service sends none to one that is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Probe>,
    /// Fails when the container has to be restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<Probe>,
    /// Passes once the program has started; the other probes wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_probe: Option<Probe>,
    /// Files of ConfigMaps, Secrets, claims, and empty directories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = schema::mount_paths())]
    pub volumes: Vec<Volume>,
    /// The ServiceAccount of the pods. Once set it cannot be left out: set 'default' to go back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::optional_name_in("serviceAccountName"))]
    pub service_account_name: Option<String>,
    /// 'Restricted' has the container run as Pod Security 'restricted' asks: not as root, and without
    /// capabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::security_profile")]
    pub security_profile: Option<String>,
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
    pub strategy: Option<Strategy>,
    /// Seconds for which a pod must be ready before it counts as available; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub min_ready_seconds: Option<i32>,
    /// Bound on the pods that a drain of nodes takes away at a time; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<PodDisruptionBudget>,
    /// Settings of the pods. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSettings>,
}

/// Replacement of old pods by those of a new template.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::pace_of_a_rolling_update())]
pub struct Strategy {
    /// 'RollingUpdate' (the default) replaces them in steps, 'Recreate' ends all before the first new one.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::strategy_type")]
    pub kind: Option<String>,
    /// The pace of a rolling update; a quarter of the pods at once if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// The pace of a rolling update, in pods or as a percentage.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::some_pace())]
pub struct RollingUpdate {
    /// Pods beyond `replicas` that there may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::amount")]
    pub max_surge: Option<IntOrString>,
    /// Pods of `replicas` that may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::amount")]
    pub max_unavailable: Option<IntOrString>,
}

/// An environment variable.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::one_value())]
pub struct EnvVar {
    /// Its name: letters, digits, '-', '_' and '.', not a digit first.
    #[schemars(length(max = 256))]
    #[x_kube(validation = schema::env_name())]
    pub name: String,
    /// Its value. $(NAME) is replaced by the value of an earlier variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub value: Option<String>,
    /// Source of its value, instead of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// Source of a value: one of these.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::one_source())]
pub struct EnvVarSource {
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeySelector>,
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeySelector>,
    /// A field of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldSelector>,
    /// A resource of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldSelector>,
}

/// A key of a ConfigMap or a Secret.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct KeySelector {
    /// The object's name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
    /// The key in it.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::config_key())]
    pub key: String,
    /// True if a pod may start without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A field of the pod.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// Always 'v1'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::field_api_version")]
    pub api_version: Option<String>,
    /// Which field, for example 'metadata.name'.
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::field_path(), validation = schema::field_path_prefix())]
    pub field_path: String,
}

/// A resource of the container.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::divisor())]
pub struct ResourceFieldSelector {
    /// Which container; the App's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub container_name: Option<String>,
    /// The unit in which it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::divisor_of_a_resource")]
    pub divisor: Option<Quantity>,
    /// Which, for example 'limits.cpu'.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::resource_field())]
    pub resource: String,
}

/// A port of the Service.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// The port that clients use. Without a number as `targetPort` the container has it, too.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The transport.
    #[serde(default = "tcp")]
    #[schemars(schema_with = "schema::protocol")]
    pub protocol: String,
    /// Its name. One is made where the Service needs it: when there are several ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = schema::service_port_name())]
    pub name: Option<String>,
    /// The port on which the container listens: a number, or a name for it; the port itself if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::target_port")]
    pub target_port: Option<IntOrString>,
    /// The port on every node; none if 0. It makes the Service one of type NodePort, unless somebody has made it a load
    /// balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub node_port: Option<i32>,
    /// The protocol above the transport, for example 'kubernetes.io/h2c'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    #[x_kube(validation = schema::app_protocol(), validation = schema::prefix_of("appProtocol"))]
    pub app_protocol: Option<String>,
}

/// The status of the Deployment, and what the operator says of it.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AppStatus {
    /// The metadata.generation that this status speaks of; -1 while no controller has seen the
    /// object.
    #[serde(default = "super::unseen")]
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
    pub selector: String,
    /// Number of missing pods.
    #[serde(default)]
    pub unavailable_replicas: i32,
    /// Ready, Reconciling, Stalled and Degraded sum up; the others are the Deployment's.
    #[serde(default)]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

fn one() -> i32 {
    1
}

fn tcp() -> String {
    "TCP".to_owned()
}
