//! The pods of an App.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::App;
use crate::object::InternedStr;
use crate::workload::labels::Identity;
use crate::workload::pod_template::{self, object, probe, security};
use crate::workload::services::{ServicePort, TargetPort};

/// Returns the pod template of an App: without token or privilege escalation, unless its `podTemplate` says otherwise.
pub(super) fn template(identity: &Identity<'_>, app: &App) -> Value {
    let spec = &app.spec;
    let over = renamed(spec.pod_template.set(), app.meta.key.name());
    let mut security = security(&spec.security_profile);
    security["seccompProfile"] = json!({ "type": "RuntimeDefault" });
    let container = object([
        ("name", json!(app.meta.key.name())),
        ("image", json!(spec.image)),
        ("imagePullPolicy", json!("IfNotPresent")),
        ("command", json!(spec.command)),
        ("args", json!(spec.args)),
        ("ports", json!(container_ports(&spec.ports, &named_ports(&over)))),
        ("env", spec.envs.set()),
        ("envFrom", spec.env_from.set()),
        ("resources", spec.resources.set()),
        ("readinessProbe", probe(&spec.readiness_probe)),
        ("livenessProbe", probe(&spec.liveness_probe)),
        ("startupProbe", probe(&spec.startup_probe)),
        ("securityContext", security),
    ]);
    let pod = json!({ "containers": [container], "automountServiceAccountToken": false });
    pod_template::template(identity, pod, over)
}

/// Name of the App's own container in its template, whatever the name of the App is.
const APP: &str = "app";

/// Returns the template, in which the App's own container has its real name.
fn renamed(mut template: Value, name: &str) -> Value {
    let containers = template.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if container["name"] == APP {
            container["name"] = json!(name);
        }
    }
    template
}

/// Returns the names of the ports of all containers that the template has.
fn named_ports(template: &Value) -> Vec<&str> {
    let lists = ["containers", "initContainers"].map(|list| template["spec"][list].as_array());
    let containers = lists.into_iter().flatten().flatten();
    let ports = containers.filter_map(|it| it["ports"].as_array()).flatten();
    ports.filter_map(|port| port["name"].as_str()).collect()
}

/// Returns the ports on which the container listens, by number and protocol. A target that is a name becomes
/// the name of a container port with the number of the Service's port, unless the template has a port of this name.
fn container_ports(ports: &[ServicePort], named: &[&str]) -> Vec<Value> {
    let mut by_number: BTreeMap<(i32, InternedStr), InternedStr> = BTreeMap::new();
    for port in ports {
        let (number, name) = match &port.target_port {
            Some(TargetPort::Number(number)) => (*number, InternedStr::default()),
            // The template gives the number of this name.
            Some(TargetPort::Name(name)) if named.contains(&name.as_str()) => continue,
            Some(TargetPort::Name(name)) => (port.port, name.clone()),
            None => (port.port, InternedStr::default()),
        };
        let known = by_number.entry((number, protocol(port))).or_default();
        if !name.is_empty() {
            *known = name;
        }
    }
    let port = |((number, protocol), name): ((i32, InternedStr), InternedStr)| {
        object([
            ("containerPort", json!(number)),
            ("protocol", json!(protocol)),
            ("name", json!(name)),
        ])
    };
    by_number.into_iter().map(port).collect()
}

/// Returns the port's protocol, or the default of the schema if it has none.
pub(super) fn protocol(port: &ServicePort) -> InternedStr {
    if port.protocol.is_empty() { InternedStr::new("TCP") } else { port.protocol.clone() }
}
