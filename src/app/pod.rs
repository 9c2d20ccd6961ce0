//! The pods of an App.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{App, Spec};
use crate::object::InternedStr;
use crate::workload::container::{pull_policy, security};
use crate::workload::pod_template::{object, without_empty};
use crate::workload::services::{ServicePort, TargetPort};

pub(super) fn pod(app: &App) -> Value {
    let spec = &app.spec;
    let (volumes, volume_mounts) = volumes(&spec.volumes);
    let mut security = security(&spec.security_profile, spec.run_as_user);
    security["seccompProfile"] = json!({ "type": "RuntimeDefault" });
    let container = object([
        ("name", json!(app.meta.key.name())),
        ("image", json!(spec.image)),
        ("imagePullPolicy", json!(pull_policy(&spec.image_pull_policy))),
        ("command", json!(spec.command)),
        ("args", json!(spec.args)),
        ("ports", json!(container_ports(&spec.ports, &named_ports(app)))),
        ("env", json!(spec.envs)),
        ("resources", json!(spec.resources)),
        ("readinessProbe", probe(spec.readiness_probe.as_deref())),
        ("livenessProbe", probe(spec.liveness_probe.as_deref())),
        ("startupProbe", probe(spec.startup_probe.as_deref())),
        ("volumeMounts", json!(volume_mounts)),
        ("securityContext", security),
    ]);
    // Otherwise a large volume would be traversed at each start.
    let group = fs_group(spec)
        .map(|group| json!({ "fsGroup": group, "fsGroupChangePolicy": "OnRootMismatch" }));
    // Without its own ServiceAccount, it does not need the API server.
    let token = spec.service_account_name.is_empty().then_some(false);
    object([
        ("containers", json!([container])),
        ("volumes", json!(volumes)),
        ("securityContext", json!(group)),
        ("automountServiceAccountToken", json!(token)),
        ("enableServiceLinks", json!(false)),
        ("serviceAccountName", json!(spec.service_account_name)),
    ])
}

/// Name of the App's own container in its template, whatever the name of the App is.
const APP: &str = "app";

/// Returns the template of the spec, in which the App's own container has its real name.
pub(super) fn template(app: &App) -> Option<Value> {
    let mut template = app.spec.pod_template.as_deref()?.clone();
    for container in template["spec"]["containers"].as_array_mut().into_iter().flatten() {
        if container["name"] == APP {
            container["name"] = json!(app.meta.key.name());
        }
    }
    Some(template)
}

/// Returns the names of the ports of all containers that the template has.
fn named_ports(app: &App) -> Vec<String> {
    let template = app.spec.pod_template.as_deref().cloned().unwrap_or_default();
    let of = |list: &str| template["spec"][list].as_array().cloned().unwrap_or_default();
    let containers = of("containers").into_iter().chain(of("initContainers"));
    let ports = containers.flat_map(|it| it["ports"].as_array().cloned().unwrap_or_default());
    ports.filter_map(|port| port["name"].as_str().map(str::to_owned)).collect()
}

/// Returns the group of the volumes. Without it, only root could write to a volume that belongs to root.
fn fs_group(spec: &Spec) -> Option<i64> {
    let is_needed = spec.security_profile == "Restricted" && !spec.volumes.is_empty();
    spec.fs_group.or(spec.run_as_user.filter(|_| is_needed))
}

/// Returns a probe as the API server stores it: without a delay of 0.
fn probe(wanted: Option<&Value>) -> Value {
    let mut probe = wanted.map(without_empty).unwrap_or_default();
    if let Some(fields) = probe.as_object_mut() {
        fields.retain(|_, value| *value != json!(0));
    }
    probe
}

/// Returns the volumes of the pod and the mounts of the container.
fn volumes(all: &[Value]) -> (Box<[Value]>, Box<[Value]>) {
    const OF_THE_MOUNT: [&str; 2] = ["mountPath", "readOnly"];
    let parts = all.iter().map(without_empty).filter_map(|volume| {
        let Value::Object(fields) = volume else { return None };
        let is_mount = |field: &String| OF_THE_MOUNT.contains(&field.as_str());
        let (mut mount, source): (Map<_, _>, Map<_, _>) =
            fields.into_iter().partition(|(field, _)| is_mount(field));
        mount.extend(source.get("name").map(|name| ("name".to_owned(), name.clone())));
        Some((Value::Object(source), Value::Object(mount)))
    });
    let (volumes, mounts): (Vec<_>, Vec<_>) = parts.unzip();
    (volumes.into(), mounts.into())
}

/// Returns the ports on which the container listens, by number and protocol. A target that is a name becomes
/// the name of a container port with the number of the Service's port, unless the template has a port of this name.
fn container_ports(ports: &[ServicePort], named: &[String]) -> Vec<Value> {
    let mut by_number: BTreeMap<(i32, InternedStr), InternedStr> = BTreeMap::new();
    for port in ports {
        let (number, name) = match &port.target_port {
            Some(TargetPort::Number(number)) => (*number, InternedStr::default()),
            // The template gives the number of this name.
            Some(TargetPort::Name(name)) if named.iter().any(|it| name == it.as_str()) => continue,
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
