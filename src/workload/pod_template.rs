//! Pod templates, and the block `pod` of a custom resource: settings of its pods in addition to those of the
//! kind.

use std::time::Duration;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::container::unless_zero;
use super::health::{Health, Level};
use super::labels::{Identity, is_reserved, union};
use super::merge::{merge, set};
use super::reason::Reason;
use crate::manager::Foreign;
use crate::object::{InternedStr, Labels};
use crate::schema;
use crate::schema::parts::{SecretName, Toleration, TopologySpreadConstraint};

/// The part of a pod template that the operator reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// The spec of each pod.
    pub spec: PodSpec,
}

/// The part of a pod's spec that the operator reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Containers.
    pub containers: Box<[Container]>,
    /// Init containers. Those that are always restarted run beside the containers.
    pub init_containers: Box<[Container]>,
    /// Tolerations of taints.
    pub tolerations: Box<[Value]>,
    /// Seconds between SIGTERM and SIGKILL.
    pub termination_grace_period_seconds: Option<i64>,
}

/// The part of a container that the operator reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Name, the key of the list.
    pub name: InternedStr,
    /// Image.
    pub image: InternedStr,
    /// `Always` for an init container that runs beside the containers.
    pub restart_policy: InternedStr,
    /// Condition under which it counts as ready.
    pub readiness_probe: Option<ProbeTimes>,
    /// Condition under which it counts as started.
    pub startup_probe: Option<ProbeTimes>,
}

/// The times of a probe, in seconds; `None` is Kubernetes' default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProbeTimes {
    initial_delay_seconds: Option<u64>,
    period_seconds: Option<u64>,
    failure_threshold: Option<u64>,
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
    /// Returns the longest time until a container's startup probe has failed, plus the delay of its readiness
    /// probe.
    pub(crate) fn starting(&self) -> Duration {
        // The defaults of Kubernetes (k8s.io/kubernetes/pkg/apis/core/v1/defaults.go).
        let starting = |container: &Container| {
            let startup = container.startup_probe.map_or(0, |probe| {
                let (period, failures) = (probe.period_seconds, probe.failure_threshold);
                let checks = period.unwrap_or(10).saturating_mul(failures.unwrap_or(3));
                probe.initial_delay_seconds.unwrap_or(0).saturating_add(checks)
            });
            let delay = container.readiness_probe.and_then(|probe| probe.initial_delay_seconds);
            startup.saturating_add(delay.unwrap_or(0))
        };
        let longest = self.spec.containers.iter().map(starting).max().unwrap_or(0);
        // One of these starts after the other, and all before the containers.
        let sidecars = self.spec.init_containers.iter().filter(|it| it.restart_policy == "Always");
        let all = sidecars.map(starting).fold(longest, u64::saturating_add);
        Duration::from_secs(all.min(MOST_SECONDS))
    }
}

/// Returns the pod template of a kind: `pod` with the settings of the custom resource, the template `over` merged over
/// it, and the labels that the kind guarantees.
pub(crate) fn template(
    identity: &Identity<'_>,
    mut pod: Value,
    settings: Option<&PodSettings>,
    over: Option<&Value>,
) -> Value {
    let default = PodSettings::default();
    let settings = settings.unwrap_or(&default);
    // Without a name, a removed one would stay: the API server also sets `serviceAccount`, which restores it.
    if pod["serviceAccountName"].is_null() {
        pod["serviceAccountName"] = json!("default");
    }
    settings.apply(&mut pod, &identity.selector());
    let own = identity.pod_labels();
    let labels = union(identity.inherited, &union(&settings.labels, &own));
    let annotations = json!(settings.annotations);
    let metadata = object([("labels", json!(labels)), ("annotations", annotations)]);
    let mut template = json!({ "metadata": metadata, "spec": pod });
    if let Some(mut over) = over.and_then(|over| set("", over)) {
        if let Some(Value::Object(metadata)) = over.get_mut("metadata") {
            metadata.remove("creationTimestamp");
        }
        loosen(&mut template["spec"], &over["spec"]);
        merge("", &mut template, over);
        if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
            // Other labels of the operator would add the pods to another custom resource.
            labels.retain(|key, _| !is_reserved(key));
            labels.extend(own.iter().map(|(key, value)| (key.to_string(), json!(value))));
        }
        for volume in template["spec"]["volumes"].as_array_mut().into_iter().flatten() {
            if volume.as_object().is_some_and(|fields| fields.len() == 1) {
                volume["emptyDir"] = json!({});
            }
        }
    }
    template
}

/// Returns the health of a custom resource with a template while the administrator allows none; `None` if nothing
/// refuses it.
pub(crate) fn refusal(is_allowed: bool, templates: [Option<&Value>; 2]) -> Option<Health> {
    let has_one = templates.into_iter().flatten().any(|template| set("", template).is_some());
    let message = "Templates are not allowed here. To allow them, install the admission policies, which decide who can \
                   set them, and start the operator with --allow-templates. Review existing templates first: they apply then";
    (has_one && !is_allowed)
        .then(|| Health::new(Level::Stalled, Reason::TemplateNotAllowed, message.to_owned()))
}

/// Removes defaults of a generated pod that contradict the template: a ServiceAccount that is named is used, and a
/// privileged container can gain privileges.
fn loosen(pod: &mut Value, over: &Value) {
    let none = Vec::new();
    if !over["serviceAccountName"].is_null()
        && let Some(pod) = pod.as_object_mut()
    {
        pod.remove("automountServiceAccountToken");
    }
    for container in pod["containers"].as_array_mut().into_iter().flatten() {
        let mut all = over["containers"].as_array().unwrap_or(&none).iter();
        let Some(over) = all.find(|over| over["name"] == container["name"]) else { continue };
        let context = &over["securityContext"];
        let adds_all = context["capabilities"]["add"].as_array().is_some_and(|added| {
            added.iter().any(|one| *one == "SYS_ADMIN" || *one == "CAP_SYS_ADMIN")
        });
        if (context["privileged"] == true || adds_all)
            && let Some(context) = container["securityContext"].as_object_mut()
        {
            context.remove("allowPrivilegeEscalation");
        }
    }
}

/// Returns operations that remove sources of variables for which a value is desired. The API server accepts a source
/// in addition to an empty value, and the source takes precedence.
pub(crate) fn unwanted_sources(wanted: &Value, stored: &Value, foreign: Foreign<'_>) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let containers = |spec: &Value| list(&spec["template"]["spec"]["containers"]);
    let wanted = containers(wanted);
    let mut operations = Vec::new();
    for (at, container) in containers(stored).iter().enumerate() {
        let Some(wanted) = wanted.iter().find(|wanted| wanted["name"] == container["name"]) else {
            continue;
        };
        let values = list(&wanted["env"]);
        for (number, variable) in list(&container["env"]).iter().enumerate() {
            let path = format!("/spec/template/spec/containers/{at}/env/{number}/valueFrom");
            let is_wanted =
                |value: &Value| value["name"] == variable["name"] && value["valueFrom"].is_null();
            let is_unwanted = !variable["valueFrom"].is_null() && values.iter().any(is_wanted);
            if is_unwanted && foreign(&path) {
                operations.push(json!({ "op": "remove", "path": path }));
            }
        }
    }
    operations
}

/// Returns an object of those fields that are neither null nor empty.
pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    };
    let fields = fields.into_iter().filter(|(_, value)| is_set(value));
    fields.map(|(name, value)| (name.to_owned(), value)).collect()
}

// === impl PodSettings ===

impl PodSettings {
    /// Adds the settings to a pod that `selector` selects. The kind's node selector takes precedence.
    fn apply(&self, pod: &mut Value, selector: &Labels) {
        for (key, value) in self.node_selector.iter() {
            if pod["nodeSelector"][key.as_str()].is_null() {
                pod["nodeSelector"][key.as_str()] = json!(value);
            }
        }
        // Pods of an older template do not count, because they will be deleted and the new pods would be
        // uneven. Nodes with taints that the pod does not tolerate do not count either.
        let spread = |constraint: &Value| {
            let mut constraint = constraint.clone();
            constraint["labelSelector"] = json!({ "matchLabels": selector });
            constraint["matchLabelKeys"] = json!(["pod-template-hash"]);
            constraint["nodeTaintsPolicy"] = json!("Honor");
            constraint
        };
        let tolerations: Vec<Value> = self.tolerations.iter().map(without_empty).collect();
        let spread: Vec<Value> = self.topology_spread_constraints.iter().map(spread).collect();
        let Value::Object(set) = object([
            ("tolerations", json!(tolerations)),
            ("topologySpreadConstraints", json!(spread)),
            ("priorityClassName", json!(self.priority_class_name)),
            ("imagePullSecrets", json!(self.image_pull_secrets)),
            ("terminationGracePeriodSeconds", json!(self.termination_grace_period_seconds)),
            ("enableServiceLinks", json!(self.enable_service_links)),
        ]) else {
            return;
        };
        pod.as_object_mut().into_iter().for_each(|pod| pod.extend(set.clone()));
        if let Some(seconds) = self.pre_stop_sleep_seconds {
            for container in pod["containers"].as_array_mut().into_iter().flatten() {
                container["lifecycle"] = json!({ "preStop": { "sleep": { "seconds": seconds } } });
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

    #[test]
    fn settings_are_added_and_never_replace_what_the_kind_sets() {
        let inherited = [("app", "theirs"), ("team", "theirs"), ("cost", "c")];
        let inherited: Labels = inherited.into_iter().collect();
        let identity = Identity {
            kind: "memcached",
            program: "memcached",
            label: "a",
            name: "b",
            image: None,
            more: vec![("app", "memcached")],
            inherited: &inherited,
        };
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
        let pod = json!({"nodeSelector": {"logs": "true"}, "containers": [{"name": "a"}]});
        let made = template(&identity, pod, Some(&settings), None);
        let labels = &made["metadata"]["labels"];
        let found = ["app", "team", "cost"].map(|key| labels[key].as_str());
        assert_eq!(found, [Some("memcached"), Some("a"), Some("c")]);
        assert_eq!(made["spec"]["nodeSelector"], json!({"logs": "true", "disk": "ssd"}));
        let spread = &made["spec"]["topologySpreadConstraints"][0];
        assert_eq!(spread["labelSelector"], json!({"matchLabels": {"a": "b"}}));
        let container = &made["spec"]["containers"][0];
        assert_eq!(container["lifecycle"], json!({"preStop": {"sleep": {"seconds": 5}}}));
        assert_eq!(made["spec"]["terminationGracePeriodSeconds"], Value::Null);
        let pod = json!({"containers": [{"name": "a"}]});
        let of = |over: &Value| template(&identity, pod.clone(), Some(&settings), Some(over));
        let without_labels = of(&json!({"spec": {"hostNetwork": true}}));
        assert_eq!(without_labels["metadata"], made["metadata"]);
        let foreign = json!({"a": "c", "app": "x", "app.example.com/v1": "shop", "tier": "web"});
        let labels = of(&json!({"metadata": {"labels": foreign}}))["metadata"]["labels"].clone();
        let found = ["a", "app", "app.example.com/v1", "tier"].map(|key| labels[key].as_str());
        assert_eq!(found, [Some("b"), Some("memcached"), None, Some("web")]);
    }
}
