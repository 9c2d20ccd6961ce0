//! Pod templates: what the operator reads of them, and the merge of a custom resource's `podTemplate`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::custom_resource::Json;
use super::health::{Health, Level};
use super::labels::{Identity, is_reserved, union};
use super::merge::merge;
use super::reason::Reason;
use crate::object::{InternedStr, Labels};

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
    initial_delay_seconds: Option<i64>,
    period_seconds: Option<i64>,
    failure_threshold: Option<i64>,
}

/// `spec.selector`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    /// Labels that a pod must have.
    pub match_labels: Labels,
}

/// Upper bound of the startup time that probes add: a day.
const MOST_SECONDS: i64 = 86_400;

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
        let all = sidecars.map(starting).fold(longest, i64::saturating_add);
        Duration::from_secs(all.clamp(0, MOST_SECONDS).unsigned_abs())
    }
}

/// Returns the pod template of a kind: `pod`, the template `over` merged over it, and the labels that the kind
/// guarantees.
pub(crate) fn template(identity: &Identity<'_>, mut pod: Value, over: Value) -> Value {
    // Without a name, a removed one would stay: the API server also sets `serviceAccount`, which restores it.
    pod["serviceAccountName"] = json!("default");
    // A few thousand Services can prevent a program from starting.
    pod["enableServiceLinks"] = json!(false);
    let own = identity.pod_labels();
    let labels = union(identity.inherited, &own);
    let mut template = json!({ "metadata": { "labels": labels }, "spec": pod });
    if !over.is_null() {
        merge_over(&mut template, over);
        if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
            // Other labels of the operator would add the pods to another custom resource.
            labels.retain(|key, _| !is_reserved(key));
            labels.extend(own.iter().map(|(key, value)| (key.to_string(), json!(value))));
        }
    }
    for variable in variables(&mut template) {
        // An empty value is sent to overwrite that of another manager.
        if variable["value"].is_null() && variable["valueFrom"].is_null() {
            variable["value"] = json!("");
        }
    }
    template
}

fn merge_over(template: &mut Value, mut over: Value) {
    if let Some(Value::Object(metadata)) = over.get_mut("metadata") {
        metadata.remove("creationTimestamp");
    }
    loosen(&mut template["spec"], &over["spec"]);
    merge("", template, over);
    let volumes = template.pointer_mut("/spec/volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        if volume.as_object().is_some_and(|fields| fields.len() == 1) {
            volume["emptyDir"] = json!({});
        }
    }
}

/// Returns the environment variables of all containers.
fn variables(template: &mut Value) -> impl Iterator<Item = &mut Value> {
    let pod = template["spec"].as_object_mut().into_iter().flatten();
    let lists = pod.filter(|(field, _)| matches!(field.as_str(), "containers" | "initContainers"));
    let containers = lists.filter_map(|(_, list)| list.as_array_mut()).flatten();
    containers.filter_map(|it| it.get_mut("env").and_then(Value::as_array_mut)).flatten()
}

/// Returns the health of a custom resource with a template while the administrator allows none; `None` if nothing
/// refuses it.
pub(crate) fn refusal(is_allowed: bool, templates: &[&Json]) -> Option<Health> {
    let message = "Templates are not allowed here. To allow them, install the admission policies, which decide who can \
                   set them, and start the operator with --allow-templates. Review existing templates first: they apply then";
    let is_refused = !is_allowed && templates.iter().any(|it| !it.set().is_null());
    is_refused.then(|| Health::new(Level::Stalled, Reason::TemplateNotAllowed, message.to_owned()))
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
pub(crate) fn unwanted_sources(wanted: &Value, stored: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let containers = |spec: &Value| {
        let of = |field: &'static str| {
            let all = list(&spec["template"]["spec"][field]).into_iter().enumerate();
            all.map(move |(at, container)| (format!("{field}/{at}"), container))
        };
        of("containers").chain(of("initContainers"))
    };
    let mut operations = Vec::new();
    for (at, container) in containers(stored) {
        let mut wanted = containers(wanted).map(|(_, wanted)| wanted);
        let Some(wanted) = wanted.find(|wanted| wanted["name"] == container["name"]) else {
            continue;
        };
        let values = list(&wanted["env"]);
        for (number, variable) in list(&container["env"]).iter().enumerate() {
            let path = format!("/spec/template/spec/{at}/env/{number}/valueFrom");
            let is_wanted =
                |value: &Value| value["name"] == variable["name"] && value["valueFrom"].is_null();
            let is_unwanted = !variable["valueFrom"].is_null() && values.iter().any(is_wanted);
            if is_unwanted {
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

/// Returns why a probe would never run: its port is a name that no port of its container has. Kubernetes accepts such a
/// pod.
pub(crate) fn unknown_port(template: &Value) -> Option<String> {
    let lists = ["containers", "initContainers"].map(|list| template["spec"][list].as_array());
    lists.into_iter().flatten().flatten().find_map(|container| {
        let ports = container["ports"].as_array().into_iter().flatten();
        let names: Vec<&str> = ports.filter_map(|port| port["name"].as_str()).collect();
        let unknown = |probe: &str| {
            let handlers = ["httpGet", "tcpSocket"].map(|it| container[probe][it]["port"].as_str());
            let port = handlers.into_iter().flatten().find(|port| !names.contains(port))?;
            let name = container["name"].as_str().unwrap_or_default();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Some(format!(
                "The port {port} of the {probe} is no name of a port of container {name} (it has {known}). Use the number, \
                 or name the port in `podTemplate`"
            ))
        };
        ["readinessProbe", "livenessProbe", "startupProbe"].into_iter().find_map(unknown)
    })
}

/// Returns a probe as the API server stores it: it replaces a 0 by the default.
pub(crate) fn probe(wanted: &Json) -> Value {
    let mut probe = wanted.set();
    if let Some(fields) = probe.as_object_mut() {
        fields.retain(|_, value| *value != json!(0));
    }
    probe
}

/// Returns the security context of a user's image. Pod Security `restricted` also requires `runAsNonRoot` and
/// no capabilities. An image that begins as root, as nginx does, then does not start
/// (`chown("/var/cache/nginx/client_temp", 101) failed (1: Operation not permitted)`). Only the user knows the
/// needs of the image and can choose the profile `Restricted`.
pub(crate) fn security(profile: &str) -> Value {
    let mut context = json!({ "allowPrivilegeEscalation": false });
    if profile == "Restricted" {
        context["runAsNonRoot"] = json!(true);
        context["capabilities"] = json!({ "drop": ["ALL"] });
    }
    context
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_kind_are_kept() {
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
        let pod = json!({"containers": [{"name": "a"}]});
        let of = |over: Value| template(&identity, pod.clone(), over)["metadata"]["labels"].clone();
        let found = ["app", "team", "cost"].map(|key| of(Value::Null)[key].clone());
        assert_eq!(found, ["memcached", "theirs", "c"]);
        assert_eq!(of(json!({"spec": {"hostNetwork": true}})), of(Value::Null));
        let foreign = json!({"a": "c", "app": "x", "app.example.com/v1": "shop", "tier": "web"});
        let labels = of(json!({"metadata": {"labels": foreign}}));
        let found = ["a", "app", "app.example.com/v1", "tier"].map(|key| labels[key].as_str());
        assert_eq!(found, [Some("b"), Some("memcached"), None, Some("web")]);
    }

    #[test]
    fn a_probe_of_an_unknown_port_is_named() {
        let with = |ports: Value, port: Value| {
            let probe = json!({"httpGet": {"port": port}});
            let container = json!({"name": "shop", "ports": ports, "livenessProbe": probe});
            unknown_port(&json!({"spec": {"containers": [container]}}))
        };
        let web = json!([{"name": "web", "containerPort": 80}]);
        assert_eq!(with(web.clone(), json!("web")), None);
        assert_eq!(with(json!(null), json!(80)), None);
        let message = with(web, json!("http")).unwrap();
        assert!(message.starts_with("The port http of the livenessProbe"), "{message}");
        assert!(message.contains("(it has web)"), "{message}");
    }
}
