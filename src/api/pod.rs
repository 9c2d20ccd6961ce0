//! The block `pod`, which every kind has.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Settings of the pods, beside what the kind itself sets.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::sleep_within_grace_period())]
pub struct PodSettings {
    /// Labels of the pods, beside the operator's own. A change restarts the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods. A change restarts the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_annotations")]
    pub annotations: BTreeMap<String, String>,
    /// Labels that a node must have to get a pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that do not keep the pods from a node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
    /// Spreading of the pods over groups of nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["topologyKey", "whenUnsatisfiable"]))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// The PriorityClass of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::name_in("priorityClassName"))]
    pub priority_class_name: Option<String>,
    /// The Secrets by which images are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub image_pull_secrets: Vec<SecretName>,
    /// Seconds that a pod has to end before it is killed; Kubernetes' 30 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Seconds that a pod goes on working after it is to end, while clients learn of it. They are part of
    /// `terminationGracePeriodSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 300))]
    pub pre_stop_sleep_seconds: Option<i64>,
}

/// A taint that does not keep the pods from a node.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::toleration_key(), validation = schema::toleration_value(), validation = schema::toleration_seconds())]
pub struct Toleration {
    /// The key of the taint; all of them if absent and `operator` is 'Exists'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    #[x_kube(validation = schema::qualified_name("key"))]
    pub key: Option<String>,
    /// 'Equal' (the default) compares `value`, 'Exists' does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::toleration_operator")]
    pub operator: Option<String>,
    /// The value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 63),
        regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
    )]
    pub value: Option<String>,
    /// The effect of the taint; each of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taint_effect")]
    pub effect: Option<String>,
    /// Seconds for which a taint of effect 'NoExecute' is tolerated; for ever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// Spreading of the pods over the nodes with each value of a label.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpreadConstraint {
    /// The largest difference between the numbers of pods.
    #[schemars(range(min = 1))]
    pub max_skew: i32,
    /// The label, for example 'topology.kubernetes.io/zone'.
    #[schemars(length(max = 317))]
    #[x_kube(validation = schema::qualified_name("topologyKey"))]
    pub topology_key: String,
    /// 'DoNotSchedule' leaves a pod pending, 'ScheduleAnyway' prefers the other nodes.
    #[schemars(schema_with = "schema::when_unsatisfiable")]
    pub when_unsatisfiable: String,
}

/// The name of a Secret.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct SecretName {
    /// The Secret's name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
}

/// Bound on the pods that a drain of nodes takes away at a time.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudget {
    /// The pods that may be missing, at least 1, or a percentage.
    #[schemars(schema_with = "schema::amount_of_a_budget")]
    pub max_unavailable: IntOrString,
}
