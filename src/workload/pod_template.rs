//! Pod templates, and the block `pod` of a custom resource: settings of its pods in addition to those of the
//! kind.

use std::time::Duration;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::container::{Container, Seccomp, unless_zero};
use super::labels::union;
use crate::manager::Foreign;
use crate::object::{InternedStr, Labels};
use crate::schema;
use crate::schema::parts::{SecretName, Toleration, TopologySpreadConstraint};

/// `spec.template`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// The metadata of each pod.
    pub metadata: PodMeta,
    /// The spec of each pod.
    pub spec: PodSpec,
}

/// The metadata of a pod template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodMeta {
    /// The labels of each pod.
    pub labels: Labels,
    /// The annotations of each pod.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub annotations: Labels,
}

/// The spec of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Containers, by name.
    pub containers: Box<[Container]>,
    /// The security context of all containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurity>,
    /// True if the ServiceAccount's token is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
    /// Labels that the node must have.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub node_selector: Labels,
    /// Further requirements on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Tolerations of taints. Compared as a whole, as in the API.
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    pub tolerations: Box<[Value]>,
    /// Topology spread constraints, by topology key and effect.
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    pub topology_spread_constraints: Box<[Value]>,
    /// PriorityClass.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub priority_class_name: InternedStr,
    /// Secrets for registries, by name.
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    pub image_pull_secrets: Box<[Value]>,
    /// Volumes, by name.
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    pub volumes: Box<[Value]>,
    /// ServiceAccount.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub service_account_name: InternedStr,
    /// Seconds between SIGTERM and SIGKILL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// True if the containers get environment variables for each Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_service_links: Option<bool>,
}

/// The security context of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSecurity {
    /// True if the kubelet refuses to run anything as root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// Allowed system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<Seccomp>,
    /// Group of the volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// Policy for changing the ownership of volumes to that group.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub fs_group_change_policy: InternedStr,
}

/// `spec.affinity`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Affinity {
    /// Affinity to nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
}

/// Requirements on a pod's node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// Requirements that the node must meet.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeSelector>,
}

/// Terms of which one must match. One owner sets all of them (the list is atomic in the API).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    /// The terms.
    pub node_selector_terms: Box<[NodeSelectorTerm]>,
}

/// Expressions that must all match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    /// Expressions about labels.
    pub match_expressions: Box<[MatchExpression]>,
}

/// A requirement on a node's label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MatchExpression {
    /// The label.
    pub key: InternedStr,
    /// `Exists`, `In`, …
    pub operator: InternedStr,
    /// The values, if the operator takes any.
    #[serde(skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub values: Box<[InternedStr]>,
}

/// `spec.selector`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    /// Labels that a pod must have.
    pub match_labels: Labels,
}

/// Upper bound of the startup time that probes add: a day.
const MOST_SECONDS: u64 = 86_400;

/// Settings of the pods, in addition to those of the kind itself.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "!has(self.preStopSleepSeconds) || self.preStopSleepSeconds == 0 || self.preStopSleepSeconds < \
     (has(self.terminationGracePeriodSeconds) ? self.terminationGracePeriodSeconds : 30)",
    "`preStopSleepSeconds` must be less than `terminationGracePeriodSeconds`, which defaults to 30",
))]
pub struct PodSettings {
    /// Additional labels of the pods. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schemars(schema_with = "schema::pod_labels")]
    pub labels: Labels,
    /// Annotations of the pods. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schemars(schema_with = "schema::pod_annotations")]
    pub annotations: Labels,
    /// Labels that a node must have to run the pods.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: Labels,
    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "<[Value]>::is_empty")]
    #[schemars(with = "Vec<Toleration>", length(max = 16))]
    pub tolerations: Box<[Value]>,
    /// How the pods spread over groups of nodes.
    #[serde(default, skip_serializing_if = "<[Value]>::is_empty")]
    #[schemars(with = "Vec<TopologySpreadConstraint>", length(max = 4), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["topologyKey", "whenUnsatisfiable"]))]
    pub topology_spread_constraints: Box<[Value]>,
    /// PriorityClass of the pods.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::optional_name_in("priorityClassName"))]
    pub priority_class_name: InternedStr,
    /// Secrets for pulling the images.
    #[serde(default, skip_serializing_if = "<[Value]>::is_empty")]
    #[schemars(with = "Vec<SecretName>", length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub image_pull_secrets: Box<[Value]>,
    /// Seconds that a pod has to terminate before it is killed. Defaults to 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Seconds that a pod keeps running after its termination begins, so that clients can stop using it. They count
    /// towards `terminationGracePeriodSeconds`.
    #[serde(default, deserialize_with = "unless_zero", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 300))]
    pub pre_stop_sleep_seconds: Option<i64>,
    /// If true, containers get environment variables for each Service in the namespace. Defaults to false, because a
    /// few thousand Services can prevent a program from starting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable_service_links: bool,
}

// === impl PodTemplate ===

impl PodTemplate {
    /// Removes sources of variables for which a value is desired. The API server accepts a source in addition
    /// to an empty value, and the source takes precedence.
    pub(crate) fn unwanted(&self, stored: &PodTemplate, foreign: Foreign<'_>) -> Vec<Value> {
        let mut operations = Vec::new();
        for (at, container) in stored.spec.containers.iter().enumerate() {
            let wanted = self.spec.containers.iter().find(|wanted| wanted.name == container.name);
            for (number, variable) in container.env.iter().enumerate() {
                let path = format!("/spec/template/spec/containers/{at}/env/{number}/valueFrom");
                let mut values = wanted.into_iter().flat_map(|wanted| &wanted.env);
                let is_wanted =
                    values.any(|value| value.name == variable.name && value.value_from.is_none());
                if is_wanted && variable.value_from.is_some() && foreign(&path) {
                    operations.push(json!({ "op": "remove", "path": path }));
                }
            }
        }
        operations
    }

    /// Adds labels of the custom resource. Labels that the kind or its user has set take precedence.
    pub(crate) fn inherit(&mut self, labels: &Labels) {
        self.metadata.labels = union(labels, &self.metadata.labels);
    }

    /// Returns the longest time until a container's startup probe has failed, plus the delay of its readiness
    /// probe.
    pub(crate) fn starting(&self) -> Duration {
        let seconds =
            |probe: &Value, field: &str, default: u64| probe[field].as_u64().unwrap_or(default);
        // The defaults of Kubernetes (k8s.io/kubernetes/pkg/apis/core/v1/defaults.go).
        let starting = |container: &Container| {
            let startup = container.startup_probe.as_deref().map_or(0, |probe| {
                let period = seconds(probe, "periodSeconds", 10);
                let failures = seconds(probe, "failureThreshold", 3);
                seconds(probe, "initialDelaySeconds", 0)
                    .saturating_add(period.saturating_mul(failures))
            });
            let readiness = container.readiness_probe.as_deref();
            startup.saturating_add(readiness.map_or(0, |p| seconds(p, "initialDelaySeconds", 0)))
        };
        let longest = self.spec.containers.iter().map(starting).max().unwrap_or(0);
        Duration::from_secs(longest.min(MOST_SECONDS))
    }
}

// === impl PodSettings ===

impl PodSettings {
    /// Adds the settings to the pods of `template`, which `selector` selects. Settings of the kind take
    /// precedence.
    pub(crate) fn apply(&self, template: &mut PodTemplate, selector: &Labels) {
        let (metadata, pod) = (&mut template.metadata, &mut template.spec);
        metadata.labels = union(&self.labels, &metadata.labels);
        metadata.annotations = union(&self.annotations, &metadata.annotations);
        pod.node_selector = union(&self.node_selector, &pod.node_selector);
        pod.tolerations = self.tolerations.iter().map(without_empty).collect();
        // Pods of an older template do not count, because they will be deleted and the new pods would be
        // uneven. Nodes with taints that the pod does not tolerate do not count either.
        let spread = |constraint: &Value| {
            let mut constraint = constraint.clone();
            constraint["labelSelector"] = json!({ "matchLabels": selector });
            constraint["matchLabelKeys"] = json!(["pod-template-hash"]);
            constraint["nodeTaintsPolicy"] = json!("Honor");
            constraint
        };
        pod.topology_spread_constraints =
            self.topology_spread_constraints.iter().map(spread).collect();
        pod.priority_class_name.clone_from(&self.priority_class_name);
        pod.image_pull_secrets.clone_from(&self.image_pull_secrets);
        pod.termination_grace_period_seconds = self.termination_grace_period_seconds;
        pod.enable_service_links = Some(self.enable_service_links);
        if let Some(seconds) = self.pre_stop_sleep_seconds {
            let lifecycle = json!({ "preStop": { "sleep": { "seconds": seconds } } });
            for container in &mut pod.containers {
                container.lifecycle = Some(Box::new(lifecycle.clone()));
            }
        }
    }
}

/// Returns a part of a pod without empty strings and `false`, which mean the same as their absence.
pub(crate) fn without_empty(part: &Value) -> Value {
    match part {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| *value != "" && **value != json!(false));
            set.map(|(name, value)| (name.clone(), without_empty(value))).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Container;

    #[test]
    fn settings_are_added_and_never_replace_what_the_kind_sets() {
        let mut template = PodTemplate::default();
        template.metadata.labels = [("app", "memcached")].into_iter().collect();
        template.spec.node_selector = [("logs", "true")].into_iter().collect();
        template.spec.containers = [Container::default()].into();
        let settings: PodSettings = serde_json::from_value(json!({
            "labels": {"app": "mine", "team": "a"},
            "nodeSelector": {"logs": "false", "disk": "ssd"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "topologySpreadConstraints":
                [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
            "imagePullSecrets": [{"name": "registry"}],
            "preStopSleepSeconds": 5,
        }))
        .unwrap();
        settings.apply(&mut template, &[("a", "b")].into_iter().collect());
        template
            .inherit(&[("app", "theirs"), ("team", "theirs"), ("cost", "c")].into_iter().collect());
        let made = serde_json::to_value(&template).unwrap();
        assert_eq!(
            made["metadata"]["labels"],
            json!({"app": "memcached", "team": "a", "cost": "c"})
        );
        assert_eq!(made["spec"]["nodeSelector"], json!({"logs": "true", "disk": "ssd"}));
        let spread = &made["spec"]["topologySpreadConstraints"][0];
        assert_eq!(spread["labelSelector"], json!({"matchLabels": {"a": "b"}}));
        let container = &made["spec"]["containers"][0];
        assert_eq!(container["lifecycle"], json!({"preStop": {"sleep": {"seconds": 5}}}));
        assert_eq!(made["spec"]["terminationGracePeriodSeconds"], Value::Null);
    }
}
