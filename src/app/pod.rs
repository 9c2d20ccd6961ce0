//! The pods of an App.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{App, Spec};
use crate::object::InternedStr;
use crate::workload::container::{pull_policy, security};
use crate::workload::pod_template::without_empty;
use crate::workload::services::{ServicePort, TargetPort};
use crate::workload::{Container, ContainerPort, ContainerSecurity, PodSecurity, PodSpec, Seccomp};

pub(super) fn pod(app: &App) -> PodSpec {
    let (volumes, volume_mounts) = volumes(&app.spec.volumes);
    let fs_group = fs_group(&app.spec);
    let container = Container {
        name: app.meta.key.name().clone(),
        image: app.spec.image.clone(),
        image_pull_policy: pull_policy(&app.spec.image_pull_policy),
        command: app.spec.command.clone(),
        args: app.spec.args.clone(),
        ports: container_ports(&app.spec.ports),
        env: app.spec.envs.clone(),
        resources: app.spec.resources.clone(),
        readiness_probe: probe(app.spec.readiness_probe.as_deref()),
        liveness_probe: probe(app.spec.liveness_probe.as_deref()),
        startup_probe: probe(app.spec.startup_probe.as_deref()),
        volume_mounts,
        security_context: Some(Box::new(ContainerSecurity {
            seccomp_profile: Some(Seccomp { kind: InternedStr::new("RuntimeDefault") }),
            ..security(&app.spec.security_profile, app.spec.run_as_user)
        })),
        ..Container::default()
    };
    PodSpec {
        containers: [container].into(),
        volumes,
        security_context: fs_group.map(|_| PodSecurity {
            fs_group,
            // Otherwise a large volume would be traversed at each start.
            fs_group_change_policy: InternedStr::new("OnRootMismatch"),
            ..PodSecurity::default()
        }),
        // Without its own ServiceAccount, it does not need the API server.
        automount_service_account_token: app.spec.service_account_name.is_empty().then_some(false),
        enable_service_links: Some(false),
        service_account_name: app.spec.service_account_name.clone(),
        ..PodSpec::default()
    }
}

/// Returns the group of the volumes. Without it, only root could write to a volume that belongs to root.
fn fs_group(spec: &Spec) -> Option<i64> {
    let is_needed = spec.security_profile == "Restricted" && !spec.volumes.is_empty();
    spec.fs_group.or(spec.run_as_user.filter(|_| is_needed))
}

/// Returns a probe as the API server stores it: without a delay of 0.
fn probe(wanted: Option<&Value>) -> Option<Box<Value>> {
    let mut probe = without_empty(wanted?);
    if let Some(fields) = probe.as_object_mut() {
        fields.retain(|_, value| *value != json!(0));
    }
    Some(Box::new(probe))
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
/// the name of a container port with the number of the Service's port.
fn container_ports(ports: &[ServicePort]) -> Box<[ContainerPort]> {
    let mut by_number: BTreeMap<(i32, InternedStr), InternedStr> = BTreeMap::new();
    for port in ports {
        let (number, name) = match &port.target_port {
            Some(TargetPort::Number(number)) => (*number, InternedStr::default()),
            Some(TargetPort::Name(name)) => (port.port, name.clone()),
            None => (port.port, InternedStr::default()),
        };
        let known = by_number.entry((number, protocol(port))).or_default();
        if !name.is_empty() {
            *known = name;
        }
    }
    let ports = by_number.into_iter();
    ports
        .map(|((container_port, protocol), name)| ContainerPort { container_port, protocol, name })
        .collect()
}

/// Returns the port's protocol, or the default of the schema if it has none.
pub(super) fn protocol(port: &ServicePort) -> InternedStr {
    if port.protocol.is_empty() { InternedStr::new("TCP") } else { port.protocol.clone() }
}
