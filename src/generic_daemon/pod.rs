//! The pods of a GenericDaemon.

use serde_json::{Value, json};

use super::Spec;
use crate::workload::labels::Identity;
use crate::workload::pod_template::{self, object, probe, security};

/// The container's name.
const DAEMON: &str = "daemon";

/// Returns the pod template: without token, privilege escalation or access to the node, unless `podTemplate` says
/// otherwise. The image chooses its user, because many daemons must be root.
pub(super) fn template(identity: &Identity<'_>, spec: &Spec) -> Value {
    let container = object([
        ("name", json!(DAEMON)),
        ("image", json!(spec.image)),
        ("imagePullPolicy", json!("IfNotPresent")),
        ("command", json!(spec.command)),
        ("args", json!(spec.args)),
        ("env", spec.envs.set()),
        ("envFrom", spec.env_from.set()),
        ("resources", spec.resources.set()),
        ("readinessProbe", probe(&spec.readiness_probe)),
        ("livenessProbe", probe(&spec.liveness_probe)),
        ("startupProbe", probe(&spec.startup_probe)),
        ("securityContext", security(&spec.security_profile)),
    ]);
    let pod = json!({
        "containers": [container],
        "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
        "automountServiceAccountToken": false,
    });
    let mut template = pod_template::template(identity, pod, spec.pod_template.set());
    if let Some(label) = &spec.label {
        select(&mut template["spec"], label);
    }
    template
}

/// Requires the label of a pod's node. It is a node selector where that can express the label, because
/// `kubectl get daemonset` shows it; otherwise each alternative of the affinity gets the requirement.
fn select(pod: &mut Value, label: &str) {
    let Some((key, value)) = label.split_once('=') else {
        let exists = json!({ "key": label, "operator": "Exists" });
        let affinity = &mut pod["affinity"]["nodeAffinity"];
        let required = &mut affinity["requiredDuringSchedulingIgnoredDuringExecution"];
        let terms = &mut required["nodeSelectorTerms"];
        if terms.is_null() {
            *terms = json!([{}]);
        }
        for term in terms.as_array_mut().into_iter().flatten() {
            match term["matchExpressions"].as_array_mut() {
                Some(expressions) => expressions.push(exists.clone()),
                None => term["matchExpressions"] = json!([exists]),
            }
        }
        return;
    };
    pod["nodeSelector"][key] = json!(value);
}
